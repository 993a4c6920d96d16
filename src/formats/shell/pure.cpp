// Small programs whose output their words and their input alone decide, and steps that prepare a run and are taken to succeed.
#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>

#include "formats/lines.hpp"
#include "formats/shell/sink.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

using Words = std::vector<std::string>;
using Printed = std::optional<std::string>;

bool among(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* one) { return word == one; });
}

/// What only prepares a run: it is taken to succeed, and prints nothing that is read.
bool prepares(const std::string& name) {
  return among(name, {"mkdir", "cp",  "mv",    "rm",     "rmdir", "ln",     "touch", "chmod",      "chown", "sleep",
                      "sync",  "pip", "pip3",  "module", "ml",    "conda",  "mamba", "micromamba", "git",   "wget",
                      "curl",  "tar", "unzip", "rsync",  "clear", "logger", "tput",  "reset"});
}

std::optional<std::int64_t> number(const std::string& text) {
  char* end = nullptr;
  const std::int64_t value = std::strtoll(text.c_str(), &end, 10);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (text.empty() || *end != '\0' || value > kMost || value < -kMost) return std::nullopt;
  return value;
}

/// dirname's and basename's view of a path: without slashes at its end.
std::string trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}
std::string folder_of(const std::string& said) {
  const std::string path = trimmed(said);
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : trimmed(path.substr(0, slash));
}
std::string name_of(const std::string& said, const std::string& suffix) {
  const std::string path = trimmed(said);
  std::string name = path == "/" ? path : path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
  if (name.size() > suffix.size() && name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
}

Printed base_name(const Words& words) {
  if (words.size() < 2 || words[1][0] == '-') return std::nullopt;
  return name_of(words[1], words.size() > 2 ? words[2] : std::string()) + "\n";
}
Printed folder_name(const Words& words) {
  if (words.size() != 2 || words[1][0] == '-') return std::nullopt;
  return folder_of(words[1]) + "\n";
}

Printed numbers_between(const Words& words, shell::Effort& effort) {
  std::string separator = "\n";
  Words numbers;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "-s" && i + 1 < words.size()) {
      separator = words[++i];
    } else {
      numbers.push_back(words[i]);
    }
  }
  if (numbers.empty() || numbers.size() > 3) return std::nullopt;
  const auto last = number(numbers.back()), first = numbers.size() > 1 ? number(numbers[0]) : 1,
             step = numbers.size() == 3 ? number(numbers[1]) : 1;
  if (!first || !last || !step || *step == 0) return std::nullopt;
  std::string text;
  for (std::int64_t i = *first; *step > 0 ? i <= *last : i >= *last; i += *step) {
    effort.spend(8);
    text += (text.empty() ? "" : separator) + std::to_string(i);
  }
  return text.empty() ? text : text + "\n";
}

/// The characters of a set of tr: ranges, classes and escapes.
std::optional<std::string> set_of(const std::string& said) {
  if (said == "[:upper:]") return std::string("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  if (said == "[:lower:]") return std::string("abcdefghijklmnopqrstuvwxyz");
  if (said == "[:digit:]") return std::string("0123456789");
  if (said == "[:space:]") return std::string(" \t\n\v\f\r");
  if (said.find("[:") != std::string::npos || said.find("[=") != std::string::npos) return std::nullopt;
  std::string set;
  for (std::size_t i = 0; i < said.size(); ++i) {
    char c = said[i];
    if (c == '\\' && i + 1 < said.size()) {
      c = said[++i];
      c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
    } else if (i + 2 < said.size() && said[i + 1] == '-') {
      for (int one = static_cast<unsigned char>(c); one <= static_cast<unsigned char>(said[i + 2]); ++one) set += static_cast<char>(one);
      i += 2;
      continue;
    }
    set += c;
  }
  return set;
}

Printed translated(const Words& words, const std::string& input) {
  const bool deletes = words.size() == 3 && words[1] == "-d", squeezes = words.size() == 3 && words[1] == "-s";
  if (words.size() != 3 || (words[1][0] == '-' && words[1].size() > 1 && !deletes && !squeezes)) return std::nullopt;
  const auto from = set_of(words[deletes || squeezes ? 2 : 1]), to = set_of(words[2]);
  if (!from || !to || to->empty()) return std::nullopt;
  std::string text;
  for (const char c : input) {
    const std::size_t at = from->find(c);
    if (at == std::string::npos) {
      text += c;
    } else if (squeezes) {
      if (text.empty() || text.back() != c) text += c;
    } else if (!deletes) {
      text += (*to)[std::min(at, to->size() - 1)];
    }
  }
  return text;
}

Printed counted(const Words& words, const std::string& input) {
  if (words.size() != 2) return std::nullopt;
  std::size_t count = 0;
  if (words[1] == "-l") {
    count = static_cast<std::size_t>(std::count(input.begin(), input.end(), '\n'));
  } else if (words[1] == "-c") {
    count = input.size();
  } else if (words[1] == "-w") {
    bool within = false;
    for (const char c : input) {
      const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
      count += !blank && !within ? 1 : 0;
      within = !blank;
    }
  } else {
    return std::nullopt;
  }
  return std::to_string(count) + "\n";
}

/// head -n N, head -N, tail -n N, tail -N, head: ten
Printed ends_of(const Words& words, const std::string& input) {
  std::optional<std::int64_t> count = 10;
  if (words.size() == 3 && words[1] == "-n") {
    count = number(words[2]);
  } else if (words.size() == 2 && words[1][0] == '-') {
    count = number(words[1].substr(words[1].rfind("-n", 0) == 0 ? 2 : 1));
  } else if (words.size() != 1) {
    return std::nullopt;
  }
  if (!count || *count < 0) return std::nullopt;
  std::vector<std::string> lines = lines_of(input);
  const std::size_t kept = std::min(lines.size(), static_cast<std::size_t>(*count));
  const auto cut_lines = static_cast<std::ptrdiff_t>(lines.size() - kept);
  words[0] == "head" ? lines.resize(kept) : (void)lines.erase(lines.begin(), lines.begin() + cut_lines);
  return joined(lines);
}

/// cut -d C -f N
Printed columns(const Words& words, const std::string& input) {
  std::string sign = "\t";
  std::optional<std::int64_t> field;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool d = words[i].rfind("-d", 0) == 0, f = words[i].rfind("-f", 0) == 0;
    if (!d && !f) return std::nullopt;
    const std::string value = words[i].size() > 2 ? words[i].substr(2) : i + 1 < words.size() ? words[++i] : std::string();
    if (d) sign = value;
    if (f) field = number(value);
  }
  if (!field || *field < 1 || sign.size() != 1) return std::nullopt;
  std::vector<std::string> lines = lines_of(input);
  for (std::string& line : lines) {
    if (line.find(sign) == std::string::npos) continue;
    std::size_t from = 0;
    for (std::int64_t i = 1; i < *field && from != std::string::npos; ++i)
      from = line.find(sign, from) == std::string::npos ? std::string::npos : line.find(sign, from) + 1;
    line = from == std::string::npos ? std::string() : line.substr(from, line.find(sign, from) - from);
  }
  return joined(lines);
}

/// A and B by a sign of expr that binds tightly; nullopt: it is none, or what comes out is not calculated here.
std::optional<std::int64_t> product_of(std::int64_t a, const std::string& sign, std::int64_t b) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  if (sign == "*" && std::abs(a) < kMost && std::abs(b) < kMost) return a * b;
  if (sign == "/" && b != 0) return a / b;
  if (sign == "%" && b != 0) return a % b;
  return std::nullopt;
}

/// expr A + B - C and its like.
Printed computed(const Words& words) {
  if (words.size() < 4 || words.size() % 2 != 0) return std::nullopt;
  std::vector<std::int64_t> sums;  // what stands between + and -, the signs taken in
  for (std::size_t at = 1; at < words.size(); at += 2) {
    const auto value = number(words[at]);
    if (!value) return std::nullopt;
    const std::string sign = at == 1 ? "+" : words[at - 1];
    if (sign == "+" || sign == "-") {
      sums.push_back(sign == "-" ? -*value : *value);
    } else {
      const auto product = product_of(sums.back(), sign, *value);
      if (!product) return std::nullopt;
      sums.back() = *product;
    }
  }
  return std::to_string(std::accumulate(sums.begin(), sums.end(), std::int64_t{0})) + "\n";
}

/// s/FROM/TO/ with FROM and TO as they stand: no expression of either.
struct Substitution {
  std::string from, to;
  bool all = false;
};

/// A part of such a command up to its delimiter, without what is special there; nullopt: something is.
std::optional<std::string> literal_part(const std::string& script, std::size_t& at, char delimiter, std::string_view special) {
  std::string part;
  for (; at < script.size() && script[at] != delimiter; ++at) {
    const bool escaped = script[at] == '\\' && at + 1 < script.size();
    if (escaped && script[at + 1] != delimiter && special.find(script[at + 1]) == std::string_view::npos && script[at + 1] != '\\') return std::nullopt;
    if (!escaped && special.find(script[at]) != std::string_view::npos) return std::nullopt;
    if (escaped) ++at;
    part += script[at];
  }
  if (at >= script.size()) return std::nullopt;
  ++at;
  return part;
}

/// "s/a/b/; s|c|d|g"
std::optional<std::vector<Substitution>> substitutions_of(const std::string& script) {
  std::vector<Substitution> all;
  for (std::size_t at = 0; at < script.size(); ++at) {
    if (script[at] == ' ' || script[at] == ';' || script[at] == '\n') continue;
    if (script[at] != 's' || at + 1 >= script.size()) return std::nullopt;
    const char delimiter = script[++at];
    ++at;
    const auto from = literal_part(script, at, delimiter, ".*[]^$"), to = from ? literal_part(script, at, delimiter, "&") : std::nullopt;
    if (!to || from->empty() || is_unknown(*from)) return std::nullopt;
    const bool every = at < script.size() && script[at] == 'g';
    if (every) ++at;
    if (at < script.size() && script[at] != ';' && script[at] != ' ' && script[at] != '\n') return std::nullopt;
    all.push_back({*from, *to, every});
  }
  return all;
}

/// What sed makes of a text, line by line; nullopt: by something else than the substitution of words.
Printed edited(const std::vector<std::string>& scripts, const std::string& text, shell::Effort& effort) {
  std::vector<std::string> lines = lines_of(text);
  for (const std::string& script : scripts) {
    const auto substitutions = substitutions_of(script);
    if (!substitutions) return std::nullopt;
    for (const Substitution& one : *substitutions)
      for (std::string& line : lines) {
        effort.spend(line.size() + 1);
        for (std::size_t at = line.find(one.from); at != std::string::npos; at = line.find(one.from, at + one.to.size())) {
          line.replace(at, one.from.size(), one.to);
          effort.spend(line.size());
          if (!one.all) break;
        }
      }
  }
  std::string made = joined(lines);
  if (!text.empty() && text.back() != '\n') made.pop_back();
  return made;
}

/// sed [-i] [-e] SCRIPT … [FILE …]
struct Edit {
  std::vector<std::string> scripts, files;
  bool in_place = false, known = true;
};

Edit edit_of(const Words& words) {
  Edit edit;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "-e" && i + 1 < words.size()) {
      edit.scripts.push_back(words[++i]);
    } else if (words[i].rfind("-i", 0) == 0) {
      edit.in_place = true;
    } else if (words[i].size() > 1 && words[i][0] == '-') {
      edit.known = false;
    } else if (edit.scripts.empty()) {
      edit.scripts.push_back(words[i]);
    } else {
      edit.files.push_back(words[i]);
    }
  }
  return edit;
}

Printed sorted(const Words& words, const std::string& input) {
  if (words.size() != 1) return std::nullopt;
  std::vector<std::string> lines = lines_of(input);
  std::sort(lines.begin(), lines.end());
  return joined(lines);
}

}  // namespace

Shell::Outcome Shell::edit_files(const Words& scripts, const Words& files, bool known) {
  for (const std::string& path : files) {
    const auto text = text_of_file(path);
    const Printed made = known && text ? edited(scripts, *text, effort_) : std::nullopt;
    state_.files[path_of(path)] = made ? *made : unknown_word("", "what 'sed -i' makes of " + path);
  }
  spend_on_state();
  return Outcome{};
}

std::optional<Shell::Outcome> Shell::pure(const Words& words) {
  const std::string name = words[0].substr(words[0].rfind('/') == std::string::npos ? 0 : words[0].rfind('/') + 1);
  const auto done = [&](const Printed& printed) -> std::optional<Outcome> {
    if (!printed) return std::nullopt;
    print_text(*printed);
    return Outcome{};
  };
  if (prepares(name) && !(name == "conda" && words.size() > 1 && words[1] == "run")) {
    if (around_.run && (name == "pip" || name == "pip3")) {
      Started started;
      for (const std::string& word : words) started.words.push_back(Node::scalar(word, place()));
      (void)around_.run(started);
    }
    if (out_) print_text(unknown_word("", "what '" + name + "' prints"));
    return Outcome{};
  }
  if (name == "cat") {
    std::string text;
    if (words.size() == 1 && !in_) return std::nullopt;
    if (words.size() == 1) text = in_->text.substr(std::min(in_->at, in_->text.size()));
    for (std::size_t i = 1; i < words.size(); ++i) {
      const auto file = words[i] == "-" && in_ ? std::optional<std::string>(in_->text.substr(std::min(in_->at, in_->text.size())))
                                               : text_of_file(words[i]);
      if (!file) return std::nullopt;
      text += *file;
    }
    if (in_) in_->at = in_->text.size();
    return done(text);
  }
  if (name == "tee") {
    if (!in_) return std::nullopt;
    const std::string text = in_->text.substr(std::min(in_->at, in_->text.size()));
    const bool appends = words.size() > 1 && words[1] == "-a";
    for (std::size_t i = appends ? 2 : 1; i < words.size(); ++i) {
      std::string& file = state_.files[path_of(words[i])];
      file = appends ? file + text : text;
    }
    spend_on_state();
    return done(text);
  }
  if (name == "sed") {
    const Edit edit = edit_of(words);
    if (edit.in_place) return edit_files(edit.scripts, edit.files, edit.known);
    std::string text;
    if (edit.files.empty() && !in_) return std::nullopt;
    if (edit.files.empty()) text = in_->text.substr(std::min(in_->at, in_->text.size()));
    for (const std::string& path : edit.files) {
      const auto file = text_of_file(path);
      if (!file) return std::nullopt;
      text += *file;
    }
    if (const Printed made = edit.known ? edited(edit.scripts, text, effort_) : std::nullopt) return done(made);
    if (!is_unknown(text)) return std::nullopt;
    print_text(mark_of(text));
    return unknown_outcome("", "what 'sed' makes of " + told(text));
  }
  if (name == "which") return words.size() == 2 ? done(words[1] + "\n") : std::nullopt;
  if (name == "dirname") return done(folder_name(words));
  if (name == "basename") return done(base_name(words));
  if (std::any_of(words.begin(), words.end(), [](const std::string& word) { return is_unknown(word); })) return std::nullopt;
  if (name == "realpath" || name == "readlink") {
    if (words.size() < 2 || words.back()[0] == '-') return std::nullopt;
    const std::string path = path_of(words.back());
    return done((path[0] == '/' ? path : unset_mark("PWD") + "/" + path) + "\n");
  }
  if (name == "seq") return done(numbers_between(words, effort_));
  if (name == "expr") return done(computed(words));
  if (!in_) return std::nullopt;
  const std::string input = in_->text.substr(std::min(in_->at, in_->text.size()));
  if (is_unknown(input)) {
    if (!among(name, {"tr", "wc", "head", "tail", "cut", "sort", "sed", "awk", "grep", "uniq", "xargs", "rev", "paste"}))
      return std::nullopt;
    print_text(mark_of(input));
    return unknown_outcome("", "what '" + name + "' makes of " + told(input));
  }
  spend(input.size() * 2);
  if (name == "tr") return done(translated(words, input));
  if (name == "wc") return done(counted(words, input));
  if (name == "head" || name == "tail") return done(ends_of(words, input));
  if (name == "cut") return done(columns(words, input));
  if (name == "sort") return done(sorted(words, input));
  return std::nullopt;
}

}  // namespace plimsoll::formats

// The shell's own commands.
#include <algorithm>
#include <cctype>

#include "formats/shell/quotes.hpp"
#include "formats/shell/sink.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

bool among(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* one) { return word == one; });
}

/// What changes nothing that is followed here.
bool is_idle(const std::string& name) {
  return among(name, {":", "true", "trap", "ulimit", "umask", "wait", "hash", "alias", "unalias", "times", "disown", "bg", "fg", "jobs",
                      "enable", "history", "kill", "complete", "bind"});
}

std::int64_t number_of(const std::string& text, std::int64_t otherwise) {
  char* end = nullptr;
  const std::int64_t value = std::strtoll(text.c_str(), &end, 10);
  return text.empty() || *end != '\0' ? otherwise : value;
}

/// A path without "." and "a/..".
std::string plain_path(const std::string& path) {
  std::vector<std::string> parts;
  const bool absolute = !path.empty() && path[0] == '/';
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == ".." && !parts.empty() && parts.back() != ".." && !is_unknown(parts.back())) {
      parts.pop_back();
    } else if (part != ".." || !absolute) {
      parts.push_back(part);
    }
  }
  std::string plain;
  for (const std::string& part : parts) plain += (plain.empty() && !absolute ? "" : "/") + part;
  return plain.empty() ? absolute ? "/" : "." : plain;
}

}  // namespace

std::optional<Shell::Outcome> Shell::builtin(const Words& words, const Statement& statement) {
  const std::string& name = words.front();
  if (is_idle(name)) return Outcome{};
  if (name == "false") return Outcome{1, {}};
  if (name == "echo") return print(words);
  if (name == "printf") return print_formatted(words);
  if (name == "[") {
    if (words.back() != "]") wrong("'[' has no ']'");
    return test(words, 1, words.size() - 1);
  }
  if (name == "test") return test(words, 1, words.size());
  if (among(name, {"export", "declare", "typeset", "local", "readonly"})) return declare(words, statement);
  if (name == "read") return read_words(words);
  if (name == "mapfile" || name == "readarray") return map_lines(words);
  if (name == "set") return set_options(words);
  if (name == "shift") return shift(words);
  if (name == "unset") return unset(words);
  if (name == "cd" || name == "pushd") return change_folder(words);
  if (name == "popd") return change_folder({"cd", "-"});
  if (name == "pwd") return print_text(folder_text() + "\n"), Outcome{};
  if (name == "source" || name == ".") return source(words);
  if (name == "getopts") return next_option(words);
  if (name == "return") return leave(Flow::returned, words);
  if (name == "exit") return leave(Flow::ended, words);
  if (name == "break" || name == "continue") return leave(name == "break" ? Flow::broken : Flow::continued, words);
  if (name == "shopt")
    return among(words.back(), {"-q"}) || (words.size() > 1 && words[1] == "-q") ? unknown_outcome("shopt", "a shell option") : Outcome{};
  if (name == "eval") {
    std::string text;
    for (std::size_t i = 1; i < words.size(); ++i) text += (i > 1 ? " " : "") + words[i];
    const shell::StatementPtr commands = shell::parse_script(text, where_, line_);
    return run(*commands);
  }
  if (name == "let") {
    Outcome last;
    for (std::size_t i = 1; i < words.size(); ++i) {
      std::string unknown;
      const auto value = arithmetic(words[i], unknown);
      last = value ? Outcome{*value != 0 ? 0 : 1, {}} : Outcome{1, unknown};
    }
    return last;
  }
  if (name == "exec" || name == "command" || name == "builtin") {
    std::size_t at = 1;
    if (name == "command" && words.size() > 2 && (words[1] == "-v" || words[1] == "-V")) {
      const bool own = state_.functions.count(words[2]) != 0;
      print_text(words[2] + "\n");
      return own ? Outcome{} : unknown_outcome("command -v " + words[2], "whether the command " + words[2].substr(0, 60) + " is there");
    }
    while (at < words.size() && words[at].size() > 1 && words[at][0] == '-') at += name == "exec" && words[at] == "-a" ? 2 : 1;
    if (at >= words.size()) return Outcome{};
    const Words rest(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
    const auto own = builtin(rest, statement);
    const Outcome outcome = own ? *own : external(rest);
    if (name == "exec") flow_ = Flow::ended;
    return outcome;
  }
  return std::nullopt;
}

// ---- printing ----------------------------------------------------------------------------------------------------------------

Shell::Outcome Shell::print(const Words& words) {
  std::size_t at = 1;
  bool newline = true, escapes = false;
  for (; at < words.size() && words[at].size() > 1 && words[at][0] == '-' && words[at].find_first_not_of("neE", 1) == std::string::npos;
       ++at)
    for (const char c : words[at].substr(1)) {
      if (c == 'n') newline = false;
      if (c != 'n') escapes = c == 'e';
    }
  std::string text;
  for (std::size_t i = at; i < words.size(); ++i) text += (i > at ? " " : "") + words[i];
  if (escapes) text = is_unknown(text) ? text : shell::with_escapes(text, shell::Escapes::printed);
  print_text(text + (newline ? "\n" : ""));
  return {};
}

/// One round of a format over the words from `at` on, which stay where the format takes none. `numbers`: false where a word is none that
/// should be, which printf tells by its outcome.
std::string Shell::formatted(const Words& words, std::size_t at, bool& numbers) {
  const std::string& format = words.front();
  std::string text;
  do {
    const std::size_t before = at;
    for (std::size_t i = 0; i < format.size();) {
      spend(1);
      if (format[i] == '\\') {
        std::size_t end = i + 2;
        while (end < format.size() && end < i + 4 && std::isdigit(static_cast<unsigned char>(format[end])) != 0) ++end;
        const std::string one = format.substr(i, end - i);
        const bool octal = one.size() > 1 && one[1] >= '0' && one[1] <= '7';
        text += shell::with_escapes(octal ? one : one.substr(0, 2), octal ? shell::Escapes::quoted : shell::Escapes::printed);
        i += octal ? one.size() : 2;
        continue;
      }
      if (format[i] != '%') {
        text += format[i++];
        continue;
      }
      std::size_t end = i + 1;
      while (end < format.size() && std::string_view("-+ 0#").find(format[end]) != std::string_view::npos) ++end;
      while (end < format.size() && (std::isdigit(static_cast<unsigned char>(format[end])) != 0 || format[end] == '.')) ++end;
      const char kind = end < format.size() ? format[end] : '%';
      std::string shape = format.substr(i, end - i);
      i = end + 1;
      if (kind == '%') {
        text += '%';
        continue;
      }
      constexpr std::size_t kMostShape = 6;
      if (shape.size() > kMostShape) wrong("the format of printf '" + shape.substr(0, 20) + "'");
      const std::string word = at < words.size() ? words[at] : std::string();
      if (at < words.size()) ++at;
      std::string one;
      if (is_unknown(word)) {
        one = word;
      } else if (kind == 's' || kind == 'b' || kind == 'q') {
        const std::string value = kind == 'b'   ? shell::with_escapes(word, shell::Escapes::printed)
                                  : kind == 'q' ? shell::in_quotes(word)
                                                : word;
        const std::size_t dot = shape.find('.');
        const std::string cut_value =
            dot == std::string::npos ? value : value.substr(0, static_cast<std::size_t>(number_of(shape.substr(dot + 1), 0)));
        const bool left = shape.find('-') != std::string::npos;
        const std::string digits = shape.substr(1, dot == std::string::npos ? dot : dot - 1);
        const auto width = static_cast<std::size_t>(std::abs(number_of(digits, 0)));
        const std::string fill(width > cut_value.size() ? width - cut_value.size() : 0, ' ');
        one = left ? cut_value + fill : fill + cut_value;
      } else if (std::string_view("dioxXu").find(kind) != std::string_view::npos) {
        char buffer[1200];
        const bool letter = word.size() > 1 && (word[0] == '\'' || word[0] == '"');
        char* rest = nullptr;
        const std::int64_t number = std::strtoll(word.c_str(), &rest, 0), value = letter ? static_cast<unsigned char>(word[1]) : number;
        if (!letter && *rest != '\0') numbers = false;
        shape += "l";
        shape += kind;
        std::snprintf(buffer, sizeof buffer, shape.c_str(), static_cast<long>(value));
        one = buffer;
      } else if (kind == 'c') {
        one = word.substr(0, 1);
      } else if (std::string_view("feEgG").find(kind) != std::string_view::npos) {
        char buffer[1600];
        shape += kind;
        std::snprintf(buffer, sizeof buffer, shape.c_str(), std::strtod(word.c_str(), nullptr));
        one = buffer;
      } else {
        one = unknown_word("", std::string("printf's %") + kind);
      }
      text += one;
    }
    if (at == before) break;
  } while (at < words.size());
  return text;
}

Shell::Outcome Shell::print_formatted(const Words& words) {
  std::size_t at = 1;
  std::string into;
  if (at + 1 < words.size() && words[at] == "-v") {
    into = words[at + 1];
    at += 2;
  }
  if (at < words.size() && words[at] == "--") ++at;
  if (at >= words.size()) return {2, {}};
  bool numbers = true;
  const std::string text = formatted({words.begin() + static_cast<std::ptrdiff_t>(at), words.end()}, 1, numbers);
  if (into.empty()) {
    print_text(text);
  } else {
    const std::size_t open = into.find('[');
    put(into.substr(0, open), open == std::string::npos ? "" : into.substr(open + 1, into.size() - open - 2), open != std::string::npos,
        text, false);
  }
  return {numbers ? 0 : 1, {}};
}

// ---- variables ---------------------------------------------------------------------------------------------------------------

Shell::Outcome Shell::declare(const Words& words, const Statement& statement) {
  const bool local = words[0] == "local" || ((words[0] == "declare" || words[0] == "typeset") && !state_.scopes.empty());
  std::string flags;
  std::size_t at = 1;
  for (; at < words.size() && words[at].size() > 1 && (words[at][0] == '-' || words[at][0] == '+'); ++at)
    if (words[at][0] == '-' && words[at] != "--") flags += words[at].substr(1);
  const auto has = [&](char flag) { return flags.find(flag) != std::string::npos; };
  if (has('f') || has('F') || has('p')) return {};
  if (has('n') && words[0] != "export") wrong("a variable that names another (" + words[0] + " -n) is not followed");
  const auto prepare = [&](const std::string& name) {
    if (local && !has('g') && !state_.scopes.empty()) {
      const auto found = state_.variables.find(name);
      const bool hidden = state_.scopes.back().count(name) != 0;
      if (!hidden) {
        state_.scopes.back()[name] = found == state_.variables.end() ? std::nullopt : std::optional<Variable>(found->second);
        state_.variables[name] = Variable();
      }
    }
    Variable& variable = state_.variables[name];
    variable.array = variable.array || has('a');
    variable.keyed = variable.keyed || has('A');
    variable.whole_number = variable.whole_number || has('i');
    variable.upper = variable.upper || has('u');
    variable.lower = variable.lower || has('l');
    variable.exported = variable.exported || has('x') || words[0] == "export";
  };
  for (; at < words.size(); ++at) {
    const std::size_t length = shell::name_length(words[at]);
    if (length == 0) continue;
    const std::string name = words[at].substr(0, length);
    if (length < words[at].size() && words[at][length] == '=') {  // out of an expansion
      prepare(name);
      put(name, {}, false, words[at].substr(length + 1), false);
    } else if (words[0] != "export" || state_.variables.count(name) != 0) {
      prepare(name);
    }
  }
  for (const shell::Assignment& one : statement.assignments) {
    const bool hides = local && !has('g') && !state_.scopes.empty();
    if (!hides) {
      prepare(one.name);
      assign(one);
      continue;
    }
    // the value is expanded before the name hides another
    const Variable outer = state_.variables.count(one.name) != 0 ? state_.variables[one.name] : Variable();
    const std::string value = one.array || one.value.raw.empty() ? std::string() : text_of(one.value);
    prepare(one.name);
    one.array ? assign_array(one) : put(one.name, one.index, one.indexed, value, one.adds);
  }
  return {};
}

Shell::Outcome Shell::unset(const Words& words) {
  bool functions = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& name = words[i];
    if (name[0] == '-') {
      functions = name == "-f";
    } else if (functions) {
      state_.functions.erase(name);
    } else if (const std::size_t open = name.find('['); open != std::string::npos) {
      Variable& variable = state_.variables[name.substr(0, open)];
      const std::string index = name.substr(open + 1, name.size() - open - 2);
      std::string unknown;
      if (variable.keyed) {
        std::erase_if(variable.entries, [&](const auto& entry) { return entry.first == index; });
      } else if (const auto at = arithmetic(index, unknown)) {
        state_.variables[name.substr(0, open)].values.erase(*at);
      }
    } else {
      if (state_.variables.count(name) == 0) state_.functions.erase(name);
      state_.variables[name] = Variable();
    }
  }
  return {};
}

Shell::Outcome Shell::set_options(const Words& words) {
  std::size_t at = 1;
  bool arguments = false;
  for (; at < words.size() && !arguments; ++at) {
    const std::string& word = words[at];
    if (word == "--") {
      arguments = true;
      continue;
    }
    if (word.size() < 2 || (word[0] != '-' && word[0] != '+')) break;
    if (word.find('e') != std::string::npos && word[1] != 'o') state_.errors_end = word[0] == '-';
    if (word.find('o') != std::string::npos && at + 1 < words.size()) {
      if (words[at + 1] == "errexit") state_.errors_end = word[0] == '-';
      ++at;
    }
  }
  if (arguments || at < words.size()) {
    state_.arguments = {words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())), words.end()};
    state_.arguments_known = true;
  }
  return {};
}

Shell::Outcome Shell::shift(const Words& words) {
  const std::int64_t by = words.size() > 1 ? number_of(words[1], -1) : 1;
  if (by < 0) return {1, {}};
  for (std::int64_t i = 0; i < by; ++i) {
    if (state_.arguments.empty()) return state_.arguments_known ? Outcome{1, {}} : Outcome{};
    const std::string& first = state_.arguments.front();
    if (is_unknown(first) && name_of_unknown(first) == "@") return {};
    state_.arguments.erase(state_.arguments.begin());
  }
  return {};
}

Shell::Outcome Shell::next_option(const Words& words) {
  if (words.size() < 3) return {2, {}};
  const Words arguments = words.size() > 3 ? Words(words.begin() + 3, words.end()) : state_.arguments;
  const bool unknown = (words.size() == 3 && !state_.arguments_known) ||
                       std::any_of(arguments.begin(), arguments.end(),
                                   [](const std::string& word) { return is_unknown(word) && name_of_unknown(word) == "@"; });
  const std::string& letters = words[1];
  if (unknown) {
    const std::string mark = unknown_word("@", "the script's own arguments");
    put(words[2], {}, false, mark, false);
    put("OPTARG", {}, false, mark, false);
    return {1, mark};
  }
  const auto index = state_.variables.find("OPTIND");
  std::int64_t at = index == state_.variables.end() || !index->second.at(0) ? 1 : number_of(*index->second.at(0), 1);
  const auto done = [&](std::string name, const std::optional<std::string>& argument, int code) {
    put(words[2], {}, false, std::move(name), false);
    if (argument) {
      put("OPTARG", {}, false, *argument, false);
    } else {
      state_.variables["OPTARG"] = Variable();
    }
    put("OPTIND", {}, false, std::to_string(at), false);
    return Outcome{code, {}};
  };
  if (at < 1 || at > static_cast<std::int64_t>(arguments.size())) return done("?", std::nullopt, 1);
  const std::string& word = arguments[static_cast<std::size_t>(at - 1)];
  if (state_.option_at == 0) {
    if (word == "--") ++at;
    if (word.size() < 2 || word[0] != '-' || word == "--") return done("?", std::nullopt, 1);
    state_.option_at = 1;
  }
  if (state_.option_at >= word.size()) state_.option_at = word.size() - 1;
  const char letter = word[state_.option_at++];
  const std::size_t known = letter == ':' ? std::string::npos : letters.find(letter);
  const bool ends = state_.option_at >= word.size();
  if (known == std::string::npos || known + 1 >= letters.size() || letters[known + 1] != ':') {
    if (ends) state_.option_at = 0, ++at;
    return done(known == std::string::npos ? "?" : std::string(1, letter), std::nullopt, 0);
  }
  std::string argument = word.substr(state_.option_at);
  state_.option_at = 0;
  ++at;
  if (ends) {
    if (at > static_cast<std::int64_t>(arguments.size())) return done(letters[0] == ':' ? ":" : "?", std::string(1, letter), 0);
    argument = arguments[static_cast<std::size_t>(at++ - 1)];
  }
  return done(std::string(1, letter), argument, 0);
}

// ---- places ------------------------------------------------------------------------------------------------------------------

std::string Shell::folder_text() {
  const std::string& folder = state_.folder;
  if (!folder.empty() && (folder[0] == '/' || folder[0] == kUnknown)) return folder;
  const std::string start = unset_mark("PWD");
  return folder.empty() ? start : start + "/" + folder;
}

std::string Shell::path_of(const std::string& path) const {
  std::string rest = path;
  bool start = false;
  if (!rest.empty() && rest[0] == kUnknown && name_of_unknown(rest) == "PWD") {
    rest.erase(0, end_of_mark(rest, 0));
    rest.erase(0, std::min(rest.find_first_not_of('/'), rest.size()));
    start = true;
  }
  const bool fixed = start || rest.empty() || rest[0] == '/' || rest[0] == kUnknown || state_.folder.empty();
  return plain_path(fixed ? rest : state_.folder + "/" + rest);
}

std::optional<std::string> Shell::text_of_file(const std::string& path) const {
  if (path == "/dev/stdin" && in_) return in_->text.substr(std::min(in_->at, in_->text.size()));
  const std::string plain = path_of(path);
  const auto written = state_.files.find(plain);
  if (written != state_.files.end()) return written->second;
  if (!around_.read || is_unknown(plain)) return std::nullopt;
  return around_.read(plain);
}

Shell::Outcome Shell::change_folder(const Words& words) {
  std::size_t at = 1;
  while (at < words.size() && (words[at] == "-P" || words[at] == "-L" || words[at] == "--")) ++at;
  if (at >= words.size()) {
    state_.folder = unset_mark("HOME");
  } else if (words[at] == "-") {
    state_.folder = unknown_word("PWD", "where 'cd -' goes");
  } else {
    const std::string to = words[at][0] == kUnknown && name_of_unknown(words[at]) == "PWD" ? words[at] : path_of(words[at]);
    state_.folder = to == "." ? std::string() : to;
  }
  return {};
}

Shell::Outcome Shell::source(const Words& words) {
  if (words.size() < 2) return {2, {}};
  const auto text = text_of_file(words[1]);
  if (!text) {
    note(words[0] + " " + readable(words[1]).substr(0, 100) + ": not there; what it sets is not known");
    return unknown_outcome("source " + words[1], "whether " + readable(words[1]).substr(0, 80) + " is there");
  }
  const Deeper deeper(*this);
  const shell::StatementPtr commands = shell::parse_script(*text, readable(words[1]), 1);
  const std::string outer_where = where_;
  const Words outer_arguments = state_.arguments;
  const bool outer_known = state_.arguments_known, has_arguments = words.size() > 2;
  if (has_arguments) {
    state_.arguments = {words.begin() + 2, words.end()};
    state_.arguments_known = true;
  }
  where_ = path_of(words[1]);
  const Outcome outcome = run(*commands);
  where_ = outer_where;
  if (has_arguments) {
    state_.arguments = outer_arguments;
    state_.arguments_known = outer_known;
  }
  if (flow_ == Flow::returned) flow_ = Flow::on;
  return outcome;
}

Shell::Outcome Shell::leave(Flow flow, const Words& words) {
  const bool loop = flow == Flow::broken || flow == Flow::continued;
  if (loop && loops_ == 0) return {};
  if (flow == Flow::returned && calls_ == 0 && where_.empty()) return {};
  flow_ = flow;
  if (loop) {
    levels_ = static_cast<int>(std::clamp<std::int64_t>(words.size() > 1 ? number_of(words[1], 1) : 1, 1, loops_));
    return {};
  }
  if (words.size() < 2) return state_.last;
  if (is_unknown(words[1])) return {1, mark_of(words[1])};
  constexpr std::int64_t kByte = 255;
  return {static_cast<int>(number_of(words[1], 2) & kByte), {}};
}

}  // namespace plimsoll::formats

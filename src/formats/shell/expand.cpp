// Words expanded: quotes, substitutions, fields.
#include <algorithm>
#include <cctype>

#include "formats/shell/arithmetic.hpp"
#include "formats/shell/braces.hpp"
#include "formats/shell/quotes.hpp"
#include "formats/shell/sink.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {

Shell::Words Shell::fields_of(const std::vector<Word>& words) {
  Words fields;
  for (const Word& word : words) fields_of(word, fields);
  return fields;
}

void Shell::fields_of(const Word& word, Words& into) {
  for (const std::string& raw : shell::expand_braces(word.raw, place(), effort_)) {
    Sink sink(*this, Mode::fields, separators());
    expand(raw, sink, false);
    for (std::string& field : std::move(sink).take()) {
      Words paths = shell::has_pattern(field) && !is_unknown(field) ? paths_of(field) : Words();
      if (paths.empty()) paths.push_back(shell::unescaped(field));
      for (std::string& path : paths) into.push_back(std::move(path));
    }
  }
}

std::string Shell::text_of(const Word& word, Mode mode) {
  Sink sink(*this, mode);
  expand(word.raw, sink, false);
  return std::move(sink).take().front();
}

std::string Shell::separators() {
  const auto found = state_.variables.find("IFS");
  if (found == state_.variables.end() || !found->second.is_set()) return " \t\n";
  const std::string* text = found->second.at(0);
  return text == nullptr ? " \t\n" : *text;
}

/// A here-document is text in double quotes whose quotes are text; one whose end is quoted is text alone.
std::string Shell::document_of(const shell::Redirection& redirection) {
  if (!redirection.document) return {};
  const std::string& text = *redirection.document;
  if (redirection.target.raw.find_first_of("'\"\\") != std::string::npos) return text;
  Sink sink(*this, Mode::text);
  std::string plain;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\\' && i + 1 < text.size() && std::string_view("$`\\\n").find(text[i + 1]) != std::string_view::npos) {
      if (text[i + 1] != '\n') sink.quoted(text[i + 1]);
      i += 2;
    } else if (text[i] == '$') {
      i = dollar(text, i, sink, true);
    } else if (text[i] == '`') {
      const std::size_t end = shell::end_of_quote(text, i, where_, line_);
      expand(text.substr(i, end - i), sink, true);
      i = end;
    } else {
      sink.quoted(text[i++]);
    }
  }
  return std::move(sink).take().front();
}

void Shell::expand(const std::string& raw, Sink& sink, bool in_double) {
  const Deeper deeper(*this);
  spend(raw.size() + 1);
  const auto put = [&](char c) { in_double ? sink.quoted(c) : sink.plain(c); };
  for (std::size_t i = 0; i < raw.size();) {
    const char c = raw[i];
    if (c == kUnknown) {
      const std::size_t end = end_of_mark(raw, i);
      sink.mark(raw.substr(i, end - i));
      i = end;
    } else if (c == '\\') {
      const bool ends = i + 1 >= raw.size();
      const bool takes = !ends && (!in_double || std::string_view("$`\"\\\n").find(raw[i + 1]) != std::string_view::npos);
      if (ends || !takes) {
        sink.quoted('\\');
        ++i;
        continue;
      }
      if (raw[i + 1] != '\n') sink.quoted(raw[i + 1]);
      i += 2;
    } else if (c == '\'' && !in_double) {
      const std::size_t end = std::min(raw.find('\'', i + 1), raw.size());
      sink.open();
      sink.quoted_text(raw.substr(i + 1, end - i - 1));
      i = end + 1;
    } else if (c == '"') {
      if (in_double) {  // within ${…} of a text in quotes
        ++i;
        continue;
      }
      const std::size_t end = shell::end_of_quote(raw, i, where_, line_);
      const bool outer = list_seen_;
      list_seen_ = false;
      expand(raw.substr(i + 1, end - i - 2), sink, true);
      if (!list_seen_) sink.open();
      list_seen_ = outer;
      i = end;
    } else if (c == '`') {
      const std::size_t end = shell::end_of_quote(raw, i, where_, line_);
      std::string inner;
      for (std::size_t at = i + 1; at + 1 < end; ++at) {
        const bool escapes = raw[at] == '\\' && at + 2 < end && std::string_view("$`\\").find(raw[at + 1]) != std::string_view::npos;
        inner += escapes ? raw[++at] : raw[at];
      }
      const std::string said = substitution(inner);
      in_double ? sink.quoted_text(said) : sink.value(said);
      i = end;
    } else if (c == '$') {
      i = dollar(raw, i, sink, in_double);
    } else if ((c == '<' || c == '>') && !in_double && i + 1 < raw.size() && raw[i + 1] == '(') {
      const std::size_t end = shell::end_of_quote(raw, i, where_, line_);
      sink.mark(unknown_word("", "the process substitution " + raw.substr(i, 60)));
      i = end;
    } else if (c == '~' && i == 0 && !in_double && (raw.size() == 1 || raw[1] == '/')) {
      const auto home = state_.variables.find("HOME");
      const std::string* path = home == state_.variables.end() ? nullptr : home->second.at(0);
      path ? sink.quoted_text(*path) : sink.mark(unset_mark("HOME"));
      ++i;
    } else {
      put(c);
      ++i;
    }
  }
}

/// What begins with the "$" at `at`; one past its end.
std::size_t Shell::dollar(const std::string& raw, std::size_t at, Sink& sink, bool in_double) {
  const char next = at + 1 < raw.size() ? raw[at + 1] : '\0';
  if (next == '(') {
    const std::size_t end = shell::end_of_quote(raw, at, where_, line_);
    const bool counts = raw.compare(at, 3, "$((") == 0 && shell::end_of_arithmetic(raw, at, 3, where_) == end;
    const std::string said = counts ? arithmetic_text(raw.substr(at + 3, end - at - 5)) : substitution(raw.substr(at + 2, end - at - 3));
    in_double ? sink.quoted_text(said) : sink.value(said);
    return end;
  }
  if (next == '{') {
    const std::size_t end = shell::end_of_quote(raw, at, where_, line_);
    parameter(raw.substr(at + 2, end - at - 3), sink, in_double);
    return end;
  }
  if (next == '\'' && !in_double) {
    const std::size_t end = shell::end_of_quote(raw, at, where_, line_);
    sink.open();
    sink.quoted_text(shell::with_escapes(raw.substr(at + 2, end - at - 3), shell::Escapes::quoted));
    return end;
  }
  if (next == '"' && !in_double) return at + 1;
  const std::size_t length = shell::name_length(raw, at + 1);
  if (length > 0) {
    emit(fetch(raw.substr(at + 1, length), {}), sink, in_double);
    return at + 1 + length;
  }
  if (std::isdigit(static_cast<unsigned char>(next)) != 0) {
    emit(fetch_argument(static_cast<std::size_t>(next - '0')), sink, in_double);
    return at + 2;
  }
  if (next != '\0' && std::string_view("@*#?$!-").find(next) != std::string_view::npos) {
    emit(fetch_special(next), sink, in_double);
    return at + 2;
  }
  in_double ? sink.quoted('$') : sink.plain('$');
  return at + 1;
}

void Shell::emit(const Fetched& found, Sink& sink, bool in_double) {
  if (!in_double) {
    bool first = true;
    for (const std::string& item : found.items) {
      if (!first && sink.cuts()) sink.next();
      if (!first && !sink.cuts()) sink.plain(' ');
      sink.value(item);
      first = false;
    }
    return;
  }
  const std::string all = separators();
  const std::string joint = found.star ? all.substr(0, 1) : " ";
  if (found.list && !found.star) list_seen_ = true;
  bool first = true;
  for (const std::string& item : found.items) {
    if (!first && found.list && !found.star && sink.cuts()) {
      sink.next();
    } else if (!first) {
      sink.quoted_text(joint);
    }
    if (found.list) sink.open();
    sink.quoted_text(item);
    first = false;
  }
}

/// What a command would print. It is evaluated where it is pure; what it sets is gone, as in a shell of its own.
std::string Shell::substitution(const std::string& text) {
  const Deeper deeper(*this);
  constexpr std::size_t kMostNamed = 100;
  std::string name = text.substr(std::min(text.find_first_not_of(" \t\n"), text.size()));
  name = "$(" + name.substr(0, name.find_last_not_of(" \t\n") + 1) + ")";
  const bool named = name.size() <= kMostNamed && name.find('\n') == std::string::npos;
  if (named)
    if (const std::string* value = given(name)) return *value;
  std::string printed;
  const shell::StatementPtr commands = shell::parse_script(text, where_, line_);
  const auto input = in_;
  std::string* const outer = out_;
  out_ = &printed;
  substituted_ = isolated([&] { return run(*commands); });
  state_.last = *substituted_;
  out_ = outer;
  in_ = input;
  for (std::size_t at = printed.find(kUnknown); at != std::string::npos; at = printed.find(kUnknown, end_of_mark(printed, at)))
    if (name_of_unknown(printed.substr(at)).empty())
      return unknown_word(named ? name : "", "the command substitution " + readable(name).substr(0, 80) + ", which is never executed,");
  printed.erase(printed.find_last_not_of('\n') + 1);
  return printed;
}

std::string Shell::arithmetic_text(const std::string& expression) {
  std::string unknown;
  const auto value = arithmetic(expression, unknown);
  return value ? std::to_string(*value) : unknown;
}

std::optional<std::int64_t> Shell::arithmetic(const std::string& expression, std::string& unknown) {
  const Deeper deeper(*this);
  Sink sink(*this, Mode::text);
  expand(expression, sink, true);
  const std::string text = std::move(sink).take().front();
  shell::Names names;
  names.get = [&](const std::string& name, const std::string& index) {
    spend(8);
    const Fetched found = fetch(name, index);
    return found.items.empty() ? std::string() : found.items.front();
  };
  names.set = [&](const std::string& name, const std::string& index, std::int64_t value) {
    spend(8);
    put(name, index, !index.empty(), std::to_string(value), false);
  };
  const auto value = shell::evaluate(text, names, place(), unknown);
  return value;
}

/// Files whose paths are of the pattern; none: the pattern stands for itself.
Shell::Words Shell::paths_of(const std::string& pattern) {
  if (!around_.list) return {};
  Words found = {pattern.substr(0, 1) == "/" ? "/" : ""};
  for (std::size_t at = pattern.find_first_not_of('/'); at != std::string::npos && at < pattern.size();) {
    const std::size_t end = std::min(pattern.find('/', at), pattern.size());
    const std::string part = pattern.substr(at, end - at);
    const bool last = end >= pattern.size();
    Words next;
    for (const std::string& folder : found) {
      if (!shell::has_pattern(part)) {
        next.push_back(folder + shell::unescaped(part) + (last ? "" : "/"));
        continue;
      }
      for (const std::string& name : around_.list(path_of(folder))) {
        spend(name.size() + 4);
        if ((name[0] != '.' || part[0] == '.') && shell::matches(part, name, effort_)) next.push_back(folder + name + (last ? "" : "/"));
      }
    }
    found = std::move(next);
    at = pattern.find_first_not_of('/', end);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace plimsoll::formats

// ${…}: what a parameter holds, and what is made of it.
#include <algorithm>
#include <cctype>

#include "formats/shell/quotes.hpp"
#include "formats/shell/sink.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

/// Length of the parameter that begins a text: a name, a number, or a sign.
std::size_t parameter_length(const std::string& text) {
  if (text.empty()) return 0;
  if (const std::size_t length = shell::name_length(text); length > 0) return length;
  std::size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
  if (digits > 0) return digits;
  return std::string_view("@*#?$!-").find(text[0]) != std::string_view::npos ? 1 : 0;
}

/// One past the index that begins a text, "[…]"; 0: none does.
std::size_t index_length(const std::string& text) {
  if (text.empty() || text[0] != '[') return 0;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && --depth == 0) return i + 1;
  }
  return 0;
}

bool starts_with(const std::string& text, std::string_view front) { return text.compare(0, front.size(), front) == 0; }

/// Where an unquoted sign stands at the outermost level of what a parameter's operator has.
std::size_t find_sign(const std::string& text, char sign, const std::string& where) {
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == sign) return i;
    const bool quoting = text[i] == '\\' || text[i] == '\'' || text[i] == '"' || text[i] == '`' ||
                         (text[i] == '$' && i + 1 < text.size() && (text[i + 1] == '{' || text[i + 1] == '('));
    i = quoting ? shell::end_of_quote(text, i, where, 1) : i + 1;
  }
  return std::string::npos;
}

}  // namespace

std::string Shell::unset_mark(const std::string& name) {
  if (const std::string* value = given(name)) return *value;
  const std::string shown = name == kArguments ? "$@" : name;
  return unknown_word(name, "the variable " + shown.substr(0, 60) + ", which the script does not set,");
}

Shell::Fetched Shell::fetch_argument(std::size_t number) {
  if (number == 0) return {true, false, false, {state_.name.value_or(where_)}};
  const Words& arguments = state_.arguments;
  const bool open = !state_.arguments_known;
  const auto unknown = std::find_if(arguments.begin(), arguments.end(),
                                    [](const std::string& word) { return is_unknown(word) && name_of_unknown(word) == kArguments; });
  if (unknown != arguments.end() && unknown - arguments.begin() < static_cast<std::ptrdiff_t>(number))
    return {true, false, false, {*unknown}};
  if (number <= arguments.size()) return {true, false, false, {arguments[number - 1]}};
  if (!open) return {};
  const std::string name = std::to_string(number);
  if (const std::string* value = given(name)) return {true, false, false, {*value}};
  Fetched found;
  found.items = {unknown_word(name, "the script's argument $" + name)};
  return found;
}

Shell::Fetched Shell::fetch_special(char name) {
  const auto one = [](std::string text) { return Fetched{true, false, false, {std::move(text)}}; };
  const bool known = state_.arguments_known && std::none_of(state_.arguments.begin(), state_.arguments.end(), [](const std::string& word) {
                       return is_unknown(word) && name_of_unknown(word) == kArguments;
                     });
  const std::string arguments = unknown_word(kArguments, "the script's own arguments");
  switch (name) {
    case '@':
    case '*': {
      Fetched all{true, true, name == '*', state_.arguments};
      if (!state_.arguments_known) all.items.push_back(arguments);
      return all;
    }
    case '#':
      return one(known ? std::to_string(state_.arguments.size()) : given("#") ? *given("#") : arguments);
    case '?':
      return one(state_.last.is_known() ? std::to_string(state_.last.code) : state_.last.unknown);
    case '-':
      return one("hB");
    default:
      return one(unknown_word("", std::string("$") + name));
  }
}

Shell::Fetched Shell::fetch(const std::string& name, const std::string& index) {
  spend(name.size() + 4);
  if (name.size() == 1 && shell::name_length(name) == 0 && std::isdigit(static_cast<unsigned char>(name[0])) == 0)
    return fetch_special(name[0]);
  if (std::isdigit(static_cast<unsigned char>(name[0])) != 0) return fetch_argument(static_cast<std::size_t>(std::atoi(name.c_str())));
  const bool all = index == "@" || index == "*";
  const auto found = state_.variables.find(name);
  if (found == state_.variables.end()) {
    if (name == "LINENO") return {true, false, false, {std::to_string(line_)}};
    if (name == "PWD") return {true, false, false, {folder_text()}};
    if (name == "BASH_SOURCE") return {true, all, false, {where_}};
    if (all) return {false, true, index == "*", {}};  // no environment has arrays
    Fetched unset;
    unset.items = {unset_mark(name)};
    unset.set = !is_unknown(unset.items.front());
    return unset;
  }
  const Variable& variable = found->second;
  if (all) {
    Fetched list{variable.is_set(), true, index == "*", {}};
    for (const auto& [at, value] : variable.values) list.items.push_back(value);
    for (const auto& [key, value] : variable.entries) list.items.push_back(value);
    return list;
  }
  const std::string* value = nullptr;
  if (variable.keyed) {
    const std::string key = text_of({index, line_});
    if (is_unknown(key)) return {true, false, false, {mark_of(key)}};
    value = variable.at(key);
  } else {
    std::int64_t at = 0;
    if (!index.empty()) {
      std::string unknown;
      const auto number = arithmetic(index, unknown);
      if (!number) return {true, false, false, {unknown}};
      at = *number < 0 && !variable.values.empty() ? variable.values.rbegin()->first + 1 + *number : *number;
    }
    value = variable.at(at);
    if (value == nullptr && variable.values.size() == 1 && is_unknown(variable.values.begin()->second) && variable.array)
      value = &variable.values.begin()->second;  // a list that is not known
  }
  if (value == nullptr) return {};
  return {true, false, false, {*value}};
}

/// ${!prefix@}, ${!array[@]}
Shell::Fetched Shell::keys_of(const std::string& content) {
  Fetched list{true, true, content.back() == '*' || content.find("[*]") != std::string::npos, {}};
  if (content.back() != ']') {
    const std::string front = content.substr(0, content.size() - 1);
    for (const auto& [name, variable] : state_.variables)
      if (starts_with(name, front)) list.items.push_back(name);
    return list;
  }
  const auto found = state_.variables.find(content.substr(0, content.find('[')));
  if (found == state_.variables.end()) return list;
  for (const auto& [at, value] : found->second.values) list.items.push_back(std::to_string(at));
  for (const auto& [key, value] : found->second.entries) list.items.push_back(key);
  return list;
}

void Shell::parameter(const std::string& content, Sink& sink, bool in_double) {
  const Deeper deeper(*this);
  spend(content.size() + 4);
  const auto split = [&](const std::string& text, std::string& name, std::string& index, std::string& rest) {
    const std::size_t length = parameter_length(text);
    if (length == 0) wrong("'${" + readable(content).substr(0, 60) + "}' is no expansion");
    name = text.substr(0, length);
    const std::size_t brackets = shell::name_length(name) > 0 ? index_length(text.substr(length)) : 0;
    index = brackets > 0 ? text.substr(length + 1, brackets - 2) : std::string();
    rest = text.substr(length + brackets);
  };
  std::string name, index, rest;
  const bool counts = content.size() > 1 && content[0] == '#' && parameter_length(content.substr(1)) > 0;
  if (counts) {
    split(content.substr(1), name, index, rest);
    if (rest.empty()) {
      const Fetched found = name == "@" || name == "*" ? fetch_special('#') : fetch(name, index);
      if (name == "@" || name == "*") return emit(found, sink, in_double);
      const auto unknown = std::find_if(found.items.begin(), found.items.end(), [](const std::string& item) { return is_unknown(item); });
      const std::size_t size = found.list ? found.items.size() : found.items.empty() ? 0 : found.items.front().size();
      const std::string told_size = unknown != found.items.end() ? mark_of(*unknown) : std::to_string(size);
      return emit({true, false, false, {told_size}}, sink, in_double);
    }
  }
  const bool names = content.size() > 1 && content[0] == '!' &&
                     (shell::name_length(content, 1) > 0 || content == "!#" || std::isdigit(static_cast<unsigned char>(content[1])) != 0);
  if (names) {
    split(content.substr(1), name, index, rest);
    if ((rest == "@" || rest == "*") || (rest.empty() && (index == "@" || index == "*")))
      return emit(keys_of(content.substr(1)), sink, in_double);
    const Fetched named = fetch(name, index);
    const std::string target = named.items.empty() ? std::string() : named.items.front();
    if (is_unknown(target)) return emit({true, false, false, {mark_of(target)}}, sink, in_double);
    return parameter(target + rest, sink, in_double);
  }
  split(content, name, index, rest);
  operate(fetch(name, index), name, index, rest, sink, in_double);
}

void Shell::operate(Fetched found, const std::string& name, const std::string& index, const std::string& rest, Sink& sink, bool in_double) {
  if (rest.empty()) return emit(found, sink, in_double);
  if (instead(found, name, index, rest, sink, in_double)) return;
  if (rest[0] == ':' && found.list) return emit(part_of_list(found, rest.substr(1), name == "@" || name == "*"), sink, in_double);
  if (!found.set && !found.list && !found.items.empty()) return emit(found, sink, in_double);  // unknown, whatever is made of it
  for (std::string& item : found.items) item = is_unknown(item) && rest != "@Q" ? mark_of(item) : changed(item, rest);
  emit(found, sink, in_double);
}

/// - = ? +, with a colon where what is empty counts as unset; true where one of them stands here.
bool Shell::instead(const Fetched& found, const std::string& name, const std::string& index, const std::string& rest, Sink& sink,
                    bool in_double) {
  const bool colon = rest[0] == ':';
  const char sign = rest.size() > (colon ? 1U : 0U) ? rest[colon ? 1 : 0] : '\0';
  if (std::string_view("-=?+").find(sign) == std::string_view::npos || sign == '\0') return false;
  const std::string word = rest.substr(colon ? 2 : 1);
  const bool empty = std::all_of(found.items.begin(), found.items.end(), [](const std::string& item) { return item.empty(); });
  const bool list_is_there = found.list && !found.items.empty();
  const bool there =
      (found.set || list_is_there) && !(colon && (found.list ? found.items.empty() || (found.items.size() == 1 && empty) : empty));
  if (sign == '+') {
    if (there) expand(word, sink, in_double);
    return true;
  }
  if (there) return emit(found, sink, in_double), true;
  if (sign == '?')
    return emit({false, false, false, {found.items.empty() ? unset_mark(name) : found.items.front()}}, sink, in_double), true;
  if (sign == '=') {
    std::string value = text_of({in_double ? "\"" + word + "\"" : word, line_});
    put(name, index, !index.empty(), value, false);
    return emit({true, false, false, {value}}, sink, in_double), true;
  }
  expand(word, sink, in_double);
  return true;
}

std::string Shell::changed(const std::string& value, const std::string& rest) {
  switch (rest[0]) {
    case '#':
    case '%':
      return cut(value, rest);
    case '/':
      return replaced(value, rest);
    case '^':
    case ',':
      return cased(value, rest);
    case ':':
      return part(value, rest.substr(1));
    default:
      break;
  }
  if (rest == "@U" || rest == "@L") return cased(value, rest == "@U" ? "^^" : ",,");
  if (rest == "@u") return cased(value, "^");
  if (rest == "@Q") return shell::in_quotes(value);
  if (rest == "@E") return shell::with_escapes(value, shell::Escapes::quoted);
  return unknown_word("", "the expansion ${…" + rest.substr(0, 40) + "}");
}

/// #pattern, ##pattern, %pattern, %%pattern
std::string Shell::cut(const std::string& value, const std::string& rest) {
  const bool longest = rest.size() > 1 && rest[1] == rest[0], front = rest[0] == '#';
  const std::string pattern = text_of({rest.substr(longest ? 2 : 1), line_}, Mode::pattern);
  if (is_unknown(pattern)) return mark_of(pattern);
  for (std::size_t step = 0; step <= value.size(); ++step) {
    const std::size_t length = longest ? value.size() - step : step;
    spend(length + 1);
    const std::string_view piece =
        front ? std::string_view(value).substr(0, length) : std::string_view(value).substr(value.size() - length);
    if (shell::matches(pattern, piece, effort_)) return front ? value.substr(length) : value.substr(0, value.size() - length);
  }
  return value;
}

/// /pattern/text, //pattern/text, /#pattern/text, /%pattern/text
std::string Shell::replaced(const std::string& value, const std::string& rest) {
  std::size_t from = 1;
  const bool all = rest.size() > 1 && rest[1] == '/', front = rest.size() > 1 && rest[1] == '#', back = rest.size() > 1 && rest[1] == '%';
  if (all || front || back) ++from;
  const std::size_t cut_at = find_sign(rest.substr(from), '/', where_);
  const std::string pattern = text_of({rest.substr(from, cut_at), line_}, Mode::pattern);
  const std::string by = cut_at == std::string::npos ? std::string() : text_of({rest.substr(from + cut_at + 1), line_}, Mode::pattern);
  if (is_unknown(pattern) || is_unknown(by)) return mark_of(is_unknown(pattern) ? pattern : by);
  if (pattern.empty() && !front && !back) return value;
  const auto written = [&](std::string_view match) {  // & is what matched; quoted it is itself
    std::string text;
    for (std::size_t i = 0; i < by.size(); ++i) {
      if (by[i] == '\\' && i + 1 < by.size()) {
        text += by[++i];
      } else if (by[i] == '&') {
        text += match;
      } else {
        text += by[i];
      }
    }
    return text;
  };
  if (value.empty()) return pattern.find_first_not_of('*') == std::string::npos ? written(value) : value;  // as bash's match_upattern
  std::string made;
  for (std::size_t at = 0; at < value.size() || back;) {
    std::size_t length = std::string::npos;
    for (std::size_t end = value.size() + 1; end-- > at && length == std::string::npos;) {
      spend(end - at + 1);
      if (back && end != value.size()) break;
      if (shell::matches(pattern, std::string_view(value).substr(at, end - at), effort_)) length = end - at;
    }
    const bool matched = length != std::string::npos;
    if (!matched && (front || at >= value.size())) return value;
    if (matched) made += written(std::string_view(value).substr(at, length));
    if (matched && !all) return made + value.substr(at + length);
    if (!matched || length == 0) made += value[at];
    at += matched ? std::max<std::size_t>(length, 1) : 1;
  }
  return made;
}

/// ^ ^^ , ,, with a pattern of characters
std::string Shell::cased(const std::string& value, const std::string& rest) {
  const bool all = rest.size() > 1 && rest[1] == rest[0], upper = rest[0] == '^';
  const std::string pattern = text_of({rest.substr(all ? 2 : 1), line_}, Mode::pattern);
  if (is_unknown(pattern)) return mark_of(pattern);
  std::string made = value;
  for (std::size_t i = 0; i < (all ? made.size() : std::min<std::size_t>(1, made.size())); ++i) {
    if (!pattern.empty() && !shell::matches(pattern, std::string_view(value).substr(i, 1), effort_)) continue;
    const auto c = static_cast<unsigned char>(made[i]);
    made[i] = static_cast<char>(upper ? std::toupper(c) : std::tolower(c));
  }
  return made;
}

/// offset or offset:length of a text
std::string Shell::part(const std::string& value, const std::string& rest) {
  std::string unknown;
  const std::size_t colon = find_sign(rest, ':', where_);
  const auto offset = arithmetic(rest.substr(0, colon), unknown);
  const auto length = colon == std::string::npos ? std::optional<std::int64_t>(static_cast<std::int64_t>(value.size()))
                                                 : arithmetic(rest.substr(colon + 1), unknown);
  if (!offset || !length) return unknown;
  const auto size = static_cast<std::int64_t>(value.size());
  const std::int64_t from = *offset < 0 ? size + *offset : *offset;
  if (from < 0 || from > size) return {};
  const std::int64_t end = *length < 0 ? size + *length : *length > size - from ? size : from + *length;
  if (end < from) {
    if (*length < 0) wrong("'" + rest.substr(0, 60) + "' ends before it begins");
    return {};
  }
  return value.substr(static_cast<std::size_t>(from), static_cast<std::size_t>(end - from));
}

/// offset or offset:length of an array or of the arguments, whose first is $1
Shell::Fetched Shell::part_of_list(const Fetched& found, const std::string& rest, bool arguments) {
  std::string unknown;
  const std::size_t colon = find_sign(rest, ':', where_);
  const auto offset = arithmetic(rest.substr(0, colon), unknown);
  const auto length = colon == std::string::npos ? std::optional<std::int64_t>(static_cast<std::int64_t>(found.items.size()))
                                                 : arithmetic(rest.substr(colon + 1), unknown);
  Fetched made{found.set, true, found.star, {}};
  if (!offset || !length) {
    made.items = {unknown};
    return made;
  }
  Words items = found.items;
  if (arguments) items.insert(items.begin(), where_);
  const auto size = static_cast<std::int64_t>(items.size());
  const std::int64_t from = *offset < 0 ? size + *offset : *offset;
  for (std::int64_t i = std::max<std::int64_t>(from, 0); from >= 0 && i < size && i - from < *length; ++i)
    made.items.push_back(items[static_cast<std::size_t>(i)]);
  return made;
}

}  // namespace plimsoll::formats

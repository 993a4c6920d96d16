#include "formats/fix/text_edits.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "formats/lines.hpp"
#include "formats/shell/syntax.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

std::pair<std::string, std::string> split_last(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::pair{std::string(), path} : std::pair{path.substr(0, dot), path.substr(dot + 1)};
}

/// The line, from 0, on which a node of a text of lines stands ("args.yaml:12").
std::optional<std::size_t> line_of(const Node& node) {
  const std::size_t colon = node.where.rfind(':');
  std::size_t line = 0;
  if (colon == std::string::npos) return {};
  const char* begin = node.where.data() + colon + 1;
  const auto [end, error] = std::from_chars(begin, node.where.data() + node.where.size(), line);
  if (error != std::errc() || end == begin || line == 0) return {};
  return line - 1;
}

std::size_t indent_of(const std::string& line) { return std::min(line.find_first_not_of(' '), line.size()); }

bool is_blank(const std::string& line) {
  const std::size_t first = line.find_first_not_of(" \t");
  return first == std::string::npos || line[first] == '#';
}

[[noreturn]] void by_hand(const std::string& path, const Node& value, const std::string& name) {
  fail("'" + path + "' is not a line of its own", name, "set it to " + value.word() + " by hand");
}

/// A scalar as its syntax writes it: numbers and truths plain, texts in quotes where the syntax has them (JSON, TOML) or the text needs them (YAML).
std::string plain_or_quoted(const Node& value, bool quotes_text) {
  const std::string& text = value.text;
  const bool number = !text.empty() && text.find_first_not_of("0123456789+-.eE_") == std::string::npos && text.find_first_of("0123456789") != std::string::npos;
  if (!value.quoted && (number || text == "true" || text == "false")) return text;
  const bool odd = text.empty() || value.quoted || text.find_first_of(":#{}[],&*!|>'\"%@` \t") != std::string::npos;
  return quotes_text || odd ? '"' + text + '"' : text;
}

/// The same, or "[a, b]" of a list of them.
std::string on_one_line(const Node& value, bool quotes_text) {
  if (!value.is_list()) return plain_or_quoted(value, quotes_text);
  std::string text;
  for (const auto& [name, item] : value.members) text += (text.empty() ? "" : ", ") + plain_or_quoted(item, quotes_text);
  return "[" + text + "]";
}

bool lists(const Node& list, const Node& item) {
  return std::any_of(list.members.begin(), list.members.end(), [&](const auto& each) { return each.second.is_scalar() && each.second.text == item.text; });
}

/// Where a line's value ends and its comment begins.
std::size_t comment_at(const std::string& line, std::size_t from) {
  char quote = 0;
  for (std::size_t i = from; i < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == quote) quote = 0;
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
      return i;
    }
  }
  return line.size();
}

/// `key<sign>value  # comment` with another value; nullopt: the line is not that.
std::optional<std::string> with_value(const std::string& line, const std::string& key, char sign, const std::string& value) {
  std::size_t at = line.find_first_not_of(" \t-");
  if (at == std::string::npos) return {};
  const bool quoted = line[at] == '"' || line[at] == '\'';
  if (line.compare(at + (quoted ? 1 : 0), key.size(), key) != 0) return {};
  at += key.size() + (quoted ? 2 : 0);
  at = line.find_first_not_of(' ', at);
  if (at == std::string::npos || line[at] != sign) return {};
  const std::size_t begin = std::min(line.find_first_not_of(' ', at + 1), line.size());
  const std::size_t comment = comment_at(line, at + 1);
  const std::string_view old = std::string_view(line).substr(std::min(begin, comment), comment - std::min(begin, comment));
  if (!old.empty() && std::string_view("[{|>&*").find(old.front()) != std::string_view::npos) return {};
  std::size_t end = comment;
  while (end > begin && line[end - 1] == ' ') --end;
  const std::string tail = comment < line.size() ? line.substr(end) : std::string();
  const bool empty = begin >= end;
  return (empty ? line.substr(0, at + 1) + " " : line.substr(0, begin)) + value + tail;
}

/// The last line of the block that a line begins: those that are indented deeper, and no blank ones at its end.
std::size_t block_end(const std::vector<std::string>& lines, std::size_t begin) {
  std::size_t last = begin;
  for (std::size_t i = begin + 1; i < lines.size(); ++i) {
    if (is_blank(lines[i])) continue;
    const bool list = lines[i].size() > indent_of(lines[i]) && lines[i][indent_of(lines[i])] == '-' && indent_of(lines[i]) == indent_of(lines[begin]);
    if (indent_of(lines[i]) <= indent_of(lines[begin]) && !list) break;
    last = i;
  }
  return last;
}

/// The line on which a table's key stands: YAML says of a table where its first member is.
std::optional<std::size_t> key_line(const std::vector<std::string>& lines, const std::string& key, std::size_t first_member) {
  for (std::size_t i = std::min(first_member + 1, lines.size()); i-- > 0;) {
    const std::size_t at = lines[i].find_first_not_of(" -\t");
    if (at != std::string::npos && lines[i].compare(at, key.size() + 1, key + ":") == 0) return i;
  }
  return {};
}

/// Puts what a list of lines lacks behind its last item.
void add_items(std::vector<std::string>& lines, const Node& there, const std::string& path, const Node& value, const std::string& name) {
  const auto last = there.members.empty() ? std::nullopt : line_of(there.members.back().second);
  const std::size_t indent = last && *last < lines.size() ? indent_of(lines[*last]) : 0;
  const bool one_line = last && *last < lines.size() && lines[*last].compare(indent, 2, "- ") == 0 && there.members.back().second.is_scalar();
  const bool goes_on = one_line && *last + 1 < lines.size() && !is_blank(lines[*last + 1]) && indent_of(lines[*last + 1]) > indent;
  if (!one_line || goes_on) by_hand(path, value, name);
  std::size_t behind = *last + 1;
  for (const auto& [unnamed, item] : value.members)
    if (!lists(there, item))
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(behind++), std::string(indent, ' ') + "- " + plain_or_quoted(item, false));
}

}  // namespace

std::string set_in_yaml(const std::string& text, const Node& tree, const std::string& path, const Node& value, const std::string& name) {
  std::vector<std::string> lines = lines_of(text);
  const auto [above, key] = split_last(path);
  const std::string written = on_one_line(value, false);
  const Node* leaf = tree.find(path);
  if (leaf != nullptr && leaf->is_list() && value.is_list()) {
    add_items(lines, *leaf, path, value, name);
    return joined(lines);
  }
  if (leaf != nullptr) {
    const auto at = line_of(*leaf);
    const bool replaced = at && *at < lines.size() && !leaf->is_table() && !leaf->is_list() && value.is_scalar();
    const auto changed = replaced ? with_value(lines[*at], key, ':', written) : std::nullopt;
    if (!changed) by_hand(path, value, name);
    lines[*at] = *changed;
    return joined(lines);
  }
  if (above.empty()) return joined(lines) + key + ": " + written + "\n";
  const Node* parent = tree.find(above);
  if (parent == nullptr) {
    const auto [grand, middle] = split_last(above);
    if (!grand.empty()) by_hand(path, value, name);
    return joined(lines) + middle + ":\n  " + key + ": " + written + "\n";
  }
  const auto first = parent->is_table() && !parent->members.empty() ? line_of(parent->members.front().second) : std::nullopt;
  const auto begin = first ? key_line(lines, split_last(above).second, *first) : std::nullopt;
  if (!begin || *begin == *first) by_hand(path, value, name);  // {a: 1} on one line
  const std::size_t end = block_end(lines, *begin);
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(end) + 1, std::string(indent_of(lines[*first]), ' ') + key + ": " + written);
  return joined(lines);
}

std::string set_in_toml(const std::string& text, const Node& tree, const std::string& path, const Node& value, const std::string& name) {
  std::vector<std::string> lines = lines_of(text);
  const auto [section, key] = split_last(path);
  const std::string written = on_one_line(value, true);
  if (const Node* leaf = tree.find(path)) {
    const auto at = line_of(*leaf);
    const auto changed = at && *at < lines.size() && leaf->is_scalar() && value.is_scalar() ? with_value(lines[*at], key, '=', written) : std::nullopt;
    if (!changed) by_hand(path, value, name);
    lines[*at] = *changed;
    return joined(lines);
  }
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (lines[i].rfind("[" + section + "]", 0) == 0) {
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(i) + 1, key + " = " + written);
      return joined(lines);
    }
  return joined(lines) + "\n[" + section + "]\n" + key + " = " + written + "\n";
}

namespace {

/// Walks a JSON text that is known to be right.
class JsonText {
 public:
  explicit JsonText(const std::string& text) : text_(text) {}

  struct Span {
    std::size_t begin, end;
  };

  /// Of the member at a dotted path within the value at `at`; nullopt: it is not there.
  std::optional<Span> find(std::size_t at, const std::string& path) {
    at = blank(at);
    if (path.empty()) return Span{at, skip(at)};
    if (text_[at] != '{') return {};
    const std::size_t dot = std::min(path.find('.'), path.size());
    for (at = blank(at + 1); text_[at] != '}'; at = blank(at)) {
      const std::size_t key_end = skip(at);
      const std::string key = text_.substr(at + 1, key_end - at - 2);
      const std::size_t value = blank(blank(key_end) + 1);
      if (key == path) return Span{value, skip(value)};
      if (key == path.substr(0, dot) && dot < path.size()) return find(value, path.substr(dot + 1));
      at = blank(skip(value));
      if (text_[at] == ',') ++at;
    }
    return {};
  }

 private:
  std::size_t blank(std::size_t at) const {
    while (at < text_.size() && std::string_view(" \t\r\n").find(text_[at]) != std::string_view::npos) ++at;
    return at;
  }
  /// Behind the value that begins at `at`.
  std::size_t skip(std::size_t at) const {
    int depth = 0;
    do {
      if (text_[at] == '"') {
        for (++at; text_[at] != '"'; ++at)
          if (text_[at] == '\\') ++at;
      } else if (text_[at] == '{' || text_[at] == '[') {
        ++depth;
      } else if (text_[at] == '}' || text_[at] == ']') {
        --depth;
      } else if (depth == 0) {
        while (at < text_.size() && std::string_view(",]} \t\r\n").find(text_[at]) == std::string_view::npos) ++at;
        return at;
      }
      ++at;
    } while (depth > 0 && at < text_.size());
    return at;
  }

  const std::string& text_;
};

}  // namespace

std::string set_in_json(const std::string& text, const Node&, const std::string& path, const Node& value, const std::string& name) {
  const std::string written = on_one_line(value, true);
  JsonText json(text);
  if (const auto leaf = json.find(0, path)) {
    if (text[leaf->begin] == '{' || text[leaf->begin] == '[') by_hand(path, value, name);
    return text.substr(0, leaf->begin) + written + text.substr(leaf->end);
  }
  const auto [above, key] = split_last(path);
  const auto parent = json.find(0, above);
  if (!parent) {
    const auto [grand, middle] = split_last(above);
    const auto outer = json.find(0, grand);
    if (!outer || text[outer->begin] != '{') by_hand(path, value, name);
    const bool empty = text.find_first_not_of(" \t\r\n", outer->begin + 1) == outer->end - 1;
    return text.substr(0, outer->begin + 1) + "\n  \"" + middle + "\": {\"" + key + "\": " + written + "}" + (empty ? "\n" : ",") + text.substr(outer->begin + 1);
  }
  if (text[parent->begin] != '{') by_hand(path, value, name);
  const std::size_t first = text.find_first_not_of(" \t\r\n", parent->begin + 1);
  const std::string gap = text.substr(parent->begin + 1, first - parent->begin - 1);  // as the first member is set off
  const bool empty = first == parent->end - 1;
  return text.substr(0, parent->begin + 1) + (empty ? "" : gap) + "\"" + key + "\": " + written + (empty ? "" : ",") + (gap.empty() && !empty ? " " : "") +
         text.substr(parent->begin + 1);
}

namespace {

bool is_name(std::string_view text) { return !text.empty() && shell::name_length(std::string(text)) == text.size(); }

/// The word of a line that begins there, without the quotes around it.
std::string_view word_at(const std::string& line, std::size_t begin) {
  const std::string_view word = std::string_view(line).substr(begin, std::min(line.find_first_of(" \t;", begin), line.size()) - begin);
  return word.size() > 1 && (word.front() == '"' || word.front() == '\'') && word.back() == word.front() ? word.substr(1, word.size() - 2) : word;
}

/// `$NAME`, `${NAME}`, `${NAME:-8}`: a word that is one variable.
struct Variable {
  std::string_view name;
  std::string_view otherwise;  ///< "8", within the word; without data where it has none
};
std::optional<Variable> variable_of(std::string_view word) {
  if (word.size() < 2 || word.front() != '$') return {};
  word.remove_prefix(1);
  Variable one;
  if (word.front() == '{' && word.back() == '}') {
    word = word.substr(1, word.size() - 2);
    const std::size_t dash = word.find('-');
    one.name = word.substr(0, dash == std::string_view::npos ? word.size() : word[dash - (dash > 0)] == ':' ? dash - 1 : dash);
    if (dash != std::string_view::npos) one.otherwise = word.substr(dash + 1);
  } else {
    one.name = word;
  }
  return is_name(one.name) ? std::optional(one) : std::nullopt;
}

/// Where the value begins that a line of a script gives a variable: "B=8", "export B=8", "A=1 B=8".
std::optional<std::size_t> assignment_in(const std::string& line, std::string_view name) {
  static constexpr std::string_view kDeclares[] = {"export", "local", "readonly", "declare", "typeset"};
  for (std::size_t at = line.find_first_not_of(" \t"); at != std::string::npos && at < line.size(); at = line.find_first_not_of(" \t", at)) {
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    const std::string_view word = std::string_view(line).substr(at, end - at);
    const std::size_t sign = word.find('=');
    if (sign != std::string_view::npos && word.substr(0, sign) == name) return at + sign + 1;
    const bool before_another = (sign != std::string_view::npos && is_name(word.substr(0, sign))) || word.front() == '-' ||
                                std::find(std::begin(kDeclares), std::end(kDeclares), word) != std::end(kDeclares);
    if (!before_another) return {};
    at = end;
  }
  return {};
}

/// A word of a line with another value: written out, in quotes, or what stands for a variable that is not set. False: it is neither.
bool replace_word(std::string& line, std::size_t begin, const std::string& value) {
  std::string_view word = word_at(line, begin);
  if (const auto variable = variable_of(word); variable && variable->otherwise.data() != nullptr) word = variable->otherwise;
  if (word.find_first_of("$\"'`(") != std::string_view::npos) return false;
  line.replace(static_cast<std::size_t>(word.data() - line.data()), word.size(), value);
  return true;
}

/// Where a command's words end on a line: before a comment, or the word that redirects, pipes or ends it (" 2>&1 | tee log"); its size where none does.
std::size_t words_end(const std::string& line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == quote) quote = 0;
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (std::string_view("|>&;").find(line[i]) != std::string_view::npos || (line[i] == '#' && i > 0 && (line[i - 1] == ' ' || line[i - 1] == '\t'))) {
      const std::size_t before = line.find_last_of(" \t", i);
      return before == std::string::npos || line[i] == ';' ? i : before + 1;
    }
  }
  return line.size();
}

/// The option's value on a line of a launch, or, where that is a variable, what the one line before it that sets it says.
bool replace_value(std::vector<std::string>& lines, std::size_t line, std::size_t begin, const std::string& value) {
  if (replace_word(lines[line], begin, value)) return true;
  const auto variable = variable_of(word_at(lines[line], begin));
  if (!variable) return false;
  std::optional<std::pair<std::size_t, std::size_t>> set;
  for (std::size_t i = 0; i < line; ++i)
    if (const auto at = assignment_in(lines[i], variable->name)) {
      if (set) return false;  // which of them holds is for the shell to say
      set = {i, *at};
    }
  return set && replace_word(lines[set->first], set->second, value);
}

}  // namespace

std::string set_in_launch(const std::string& text, std::size_t line, const std::string& option, const std::string& value, const std::string& name) {
  std::vector<std::string> lines = lines_of(text);
  if (line == 0 || line > lines.size()) fail("the launch is not on line " + std::to_string(line), name);
  std::size_t last = line - 1;
  while (last + 1 < lines.size() && !lines[last].empty() && lines[last].back() == '\\') ++last;
  const auto ends_word = [](const std::string& on, std::size_t at) { return at >= on.size() || on[at] == ' ' || on[at] == '=' || on[at] == '\t'; };
  for (std::size_t i = line - 1; i <= last; ++i)
    for (std::size_t at = 0; (at = lines[i].find(option, at)) != std::string::npos; at += option.size()) {
      const std::size_t behind = at + option.size();
      if ((at > 0 && lines[i][at - 1] != ' ' && lines[i][at - 1] != '\t') || !ends_word(lines[i], behind)) continue;
      const std::size_t begin = lines[i].find_first_not_of(" =\t", behind);
      const bool alone = begin == std::string::npos || lines[i].compare(begin, 2, "--") == 0 || lines[i][begin] == '\\';
      if (alone) {
        if (!value.empty()) lines[i].insert(behind, " " + value);
        return joined(lines);
      }
      if (!replace_value(lines, i, begin, value))
        fail("the value of " + option + " is not written out", name + ":" + std::to_string(i + 1), "set it to " + value + " by hand");
      return joined(lines);
    }
  const std::string words = option + (value.empty() ? "" : " " + value);
  if (const std::size_t end = words_end(lines[last]); end < lines[last].size()) {
    lines[last].insert(end == 0 ? 0 : lines[last].find_last_not_of(" \t", end - 1) + 1, " " + words);
    return joined(lines);
  }
  const std::size_t indent = last > line - 1 ? indent_of(lines[last]) : 4;
  lines[last] += " \\";
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(last) + 1, std::string(indent, ' ') + words);
  return joined(lines);
}

}  // namespace plimsoll::formats

#include "formats/foreign/node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"
#include "units/files.hpp"
#include "units/json_reader.hpp"
#include "units/python_json.hpp"
#include "units/switches.hpp"

namespace plimsoll::formats {

Node::Node() = default;

Node Node::scalar(std::string text, std::string where, bool quoted) {
  Node node;
  node.kind = Kind::scalar;
  node.text = std::move(text);
  node.where = std::move(where);
  node.quoted = quoted;
  return node;
}

Node Node::table(std::string where) {
  Node node;
  node.kind = Kind::table;
  node.where = std::move(where);
  return node;
}

const Node* Node::find(std::string_view path) const {
  const std::size_t dot = path.find('.');
  for (const auto& [name, value] : members) {
    if (kind == Kind::table && name == path) return &value;  // a name that has dots itself
    if (kind == Kind::table && name == path.substr(0, dot) && dot != std::string_view::npos)
      if (const Node* found = value.find(path.substr(dot + 1))) return found;
  }
  return nullptr;
}

std::string Node::word() const {
  if (is_table()) fail("expected a value or a list of values, found a table", where);
  if (!is_list()) return text;
  std::string joined;
  for (const auto& [name, value] : members) joined += (joined.empty() ? "" : ",") + value.word();
  return joined;
}

void Node::set(std::string_view path, Node value) {
  const std::size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  auto found = std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == name; });
  if (found == members.end()) {
    members.emplace_back(name, Node::table(value.where));
    found = members.end() - 1;
  }
  if (dot == std::string_view::npos) {
    found->second = std::move(value);
    return;
  }
  if (!found->second.is_table()) found->second = Node::table(value.where);
  found->second.set(path.substr(dot + 1), std::move(value));
}

bool is_unresolved(const Node& value) { return value.is_scalar() && value.text.find("${") != std::string::npos; }

void relocate(Node& tree, const std::string& where) {
  tree.where = where;
  for (auto& [unused, value] : tree.members) relocate(value, where);
}

const Node* stated(const Node& tree, const char* key) {
  const Node* value = tree.find(key);
  return value && !value->is_null() ? value : nullptr;
}

bool is_on(const Node* value) {
  if (!value || value->is_null()) return false;
  std::optional<bool> on = value->is_scalar() ? switch_of(value->text) : std::nullopt;
  if (value->is_scalar() && !on) on = truth_of_number(value->text);
  if (!on) fail(std::string("expected ") + kSwitchWords + ", found \"" + value->text.substr(0, 60) + "\"", value->where);
  return *on;
}

std::string plain_text(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.substr(0, kMark.size()) == kMark) text.remove_prefix(kMark.size());
  std::string plain;
  plain.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      if (i + 1 >= text.size() || text[i + 1] != '\n') plain += '\n';
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::string read_plain(const std::string& path) { return plain_text(read_text_file(path, kMostText)); }

namespace {

Node node_of(const JsonValue& value) {
  Node node;
  node.where = value.where();
  if (value.is_null()) return node;
  node.kind = value.is_object() ? Node::Kind::table : value.is_array() ? Node::Kind::list : Node::Kind::scalar;
  if (value.is_object())
    for (const std::string& key : value.keys()) node.members.emplace_back(key, node_of(value[key]));
  if (value.is_array())
    for (const JsonValue& element : value.elements()) node.members.emplace_back("", node_of(element));
  if (value.is_boolean()) node.text = value.boolean() ? "true" : "false";
  if (value.is_integer()) {
    node.text = std::to_string(value.integer(INT64_MIN, INT64_MAX));
  } else if (value.is_number()) {
    node.text = fmt::format("{}", value.number(-1e308, 1e308));
  }
  if (value.is_text()) {
    node.text = value.text();
    node.quoted = true;
  }
  return node;
}

/// Where "${" at `at` ends, counting what is nested in it; npos: nowhere.
std::size_t end_of_reference(const std::string& text, std::size_t at) {
  int depth = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return std::string::npos;
}

class References {
 public:
  explicit References(const Node& root) : root_(root) {}

  void resolve(Node& node, int depth = 0) {
    if (depth > kMostDepth) fail("references go round in a circle", node.where);
    for (auto& [name, member] : node.members) {
      path_.push_back(name);
      resolve(member, depth + 1);
      path_.pop_back();
    }
    if (!node.is_scalar() || node.text.find("${") == std::string::npos) return;
    const std::size_t end = node.text.compare(0, 2, "${") == 0 ? end_of_reference(node.text, 0) : std::string::npos;
    if (end + 1 == node.text.size()) return replace_whole(node, depth);
    replace_parts(node, depth);
  }

 private:
  /// "${.key}" is beside the value that refers, "${..key}" beside the table that holds it: the whole path; other references as they are.
  std::string from_root(const std::string& reference) const {
    const std::size_t dots = std::min(reference.find_first_not_of('.'), reference.size());
    if (dots == 0 || dots > path_.size()) return reference;
    std::string whole;
    for (std::size_t i = 0; i + dots < path_.size(); ++i) whole += path_[i] + ".";
    return whole + reference.substr(dots);
  }

  /// Arithmetic that NeMo's launcher and its recipes register as resolvers ("${multiply:4, ${.hidden_size}}"); nullopt: none of it, or of no
  /// whole numbers.
  std::optional<Node> computed(const std::string& reference, const std::string& where) {
    const std::size_t colon = reference.find(':');
    const std::string name = reference.substr(0, colon);
    if (colon == std::string::npos || (name != "multiply" && name != "int_div" && name != "divide_floor" && name != "divide_ceil" && name != "sum"))
      return std::nullopt;
    Node arguments = Node::scalar(reference.substr(colon + 1), where);
    resolve(arguments);
    std::vector<std::int64_t> numbers;
    std::istringstream text(arguments.text);
    for (std::string part; std::getline(text, part, ',');) {
      std::int64_t number = 0;
      std::erase(part, ' ');
      const char* end = part.data() + part.size();
      const auto [stop, error] = std::from_chars(part.data(), end, number);
      constexpr std::int64_t kMost = std::int64_t{1} << 31;
      if (error != std::errc() || stop != end || number < 1 || number > kMost) return Node::scalar("${" + reference + "}", where, true);
      numbers.push_back(number);
    }
    if (numbers.size() != 2) return Node::scalar("${" + reference + "}", where, true);
    const std::int64_t a = numbers[0], b = numbers[1];
    const std::int64_t value = name == "multiply" ? a * b : name == "sum" ? a + b : name == "divide_ceil" ? (a + b - 1) / b : a / b;
    return Node::scalar(std::to_string(value), where);
  }

  /// The value that a reference stands for: another value of the file, or the default of one that the environment would give.
  Node value_of(const std::string& reference, const std::string& where) {
    if (const Node* found = root_.find(from_root(reference))) return *found;
    if (const auto number = computed(reference, where)) return *number;
    const bool environment = reference.compare(0, 7, "oc.env:") == 0;
    const std::string name = environment ? reference.substr(7) : reference;
    const std::size_t end = name.find_first_of(environment ? "," : ":");
    if (end != std::string::npos) return Node::scalar(name.substr(end + 1), where);
    if (environment) return Node{};
    return Node::scalar("${" + reference + "}", where, true);  // RowReader::require_resolved refuses it where it decides
  }

  void replace_whole(Node& node, int depth) {
    Node value = value_of(node.text.substr(2, node.text.size() - 3), node.where);
    value.where = node.where;
    if (is_unresolved(value)) {
      node = std::move(value);
      return;
    }
    if (++replaced_ > kMostValues) fail("the references unfold without end", node.where);
    node = std::move(value);
    resolve(node, depth + 1);
  }

  void replace_parts(Node& node, int depth) {
    std::string text;
    for (std::size_t at = 0; at < node.text.size();) {
      const std::size_t open = node.text.find("${", at);
      const std::size_t end = open == std::string::npos ? open : end_of_reference(node.text, open);
      if (end == std::string::npos) {
        text += node.text.substr(at);
        break;
      }
      Node part = Node::scalar(node.text.substr(open, end + 1 - open), node.where);
      replace_whole(part, depth + 1);
      text += node.text.substr(at, open - at) + (part.is_table() ? "" : part.word());
      if (text.size() > static_cast<std::size_t>(kMostText)) fail("the references unfold without end", node.where);
      at = end + 1;
    }
    node.text = std::move(text);
    node.quoted = true;
  }

  const Node& root_;
  std::vector<std::string> path_;  ///< of the value that is looked at
  std::size_t replaced_ = 0;
};

}  // namespace

namespace {

/// What a script does not say stands as a text where it stands bare: {"train_batch_size": ?}.
std::string with_quoted_marks(const std::string& text) {
  if (!is_unknown(text)) return text;
  std::string made;
  bool within = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == kUnknown && !within) {
      const std::size_t end = end_of_mark(text, at);
      made += '"' + text.substr(at, end - at) + '"';
      at = end - 1;
      continue;
    }
    if (c == '\\' && within && at + 1 < text.size()) made += text[at++];
    if (c == '"') within = !within;
    made += text[at];
  }
  return made;
}

}  // namespace

Node parse_json_text(const std::string& text, const std::string& where) {
  JsonLimits limits;
  limits.text_bytes = kMostText;
  limits.values = static_cast<std::int64_t>(kMostValues);
  limits.depth = kMostDepth;
  return node_of(JsonDocument::parse(json_of_python(with_quoted_marks(text)), where, limits).root());
}

void resolve_references(Node& root) {
  const Node before = root;
  References(before).resolve(root);
}

}  // namespace plimsoll::formats

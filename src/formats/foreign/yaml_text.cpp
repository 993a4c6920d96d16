// YAML as events, so that what an alias unfolds to is counted while it is copied.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cctype>
#include <charconv>
#include <map>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "formats/foreign/node.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

bool is_one_of(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words)
    if (text == word) return true;
  return false;
}

/// A plain scalar that YAML 1.1 reads as a whole number though JSON would not, in decimal digits (yaml/resolver.py and constructor.py of
/// PyYAML): 2_048, 010, 0x10, 0b11. Any other text as it stands.
std::string decimal(const std::string& value) {
  std::size_t at = !value.empty() && (value[0] == '-' || value[0] == '+') ? 1 : 0;
  const std::string sign = at == 1 && value[0] == '-' ? "-" : "";
  int base = 10;
  if (value.compare(at, 2, "0x") == 0) {
    base = 16, at += 2;
  } else if (value.compare(at, 2, "0b") == 0) {
    base = 2, at += 2;
  } else if (value.size() > at + 1 && value[at] == '0') {
    base = 8, at += 1;
  }
  std::string digits;
  for (; at < value.size(); ++at) {
    const char c = value[at];
    const bool digit = base == 16 ? std::isxdigit(static_cast<unsigned char>(c)) != 0 : c >= '0' && c < '0' + base;
    if (!digit && (c != '_' || (base == 10 && digits.empty()))) return value;
    if (digit) digits += c;
  }
  constexpr std::size_t kMostDigits = 62;  // of 63 bits in base 2
  if (digits.empty() || digits.size() > kMostDigits) return value;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  return error == std::errc() && end == digits.data() + digits.size() ? sign + std::to_string(number) : value;
}

std::size_t size_of(const Node& node) {
  std::size_t size = 1;
  for (const auto& [name, value] : node.members) size += size_of(value);
  return size;
}

/// Builds the tree; the innermost open list or table is the last of `open_`.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string where) : where_(std::move(where)) {}

  Node take() { return std::move(root_); }

  /// Where the last scalar of the text begins, which alone can lack its closing quote.
  const YAML::Mark& last_scalar() const { return last_scalar_; }

  /// PyYAML and OmegaConf read one document of a text, and raise where another begins.
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) fail("a second document begins here, and programs read one of a file", place(mark), "a file for each");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Node node;
    node.where = place(mark);
    add(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail("an alias that stands within what it stands for has no end", place(mark));
    count(size_of(found->second), place(mark));
    add(Node(found->second), 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    last_scalar_ = mark;
    const bool quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    Node node = Node::scalar(value, place(mark), quoted);
    if (!quoted && is_one_of(value, {"", "~", "null", "Null", "NULL"})) node.kind = Node::Kind::null;
    if (!quoted && is_one_of(value, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) node.text = "true";
    if (!quoted && is_one_of(value, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) node.text = "false";
    if (!quoted) node.text = decimal(node.text);
    add(std::move(node), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, anchor, Node::Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, anchor, Node::Kind::table);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Node node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;
    std::string key;
    std::unordered_map<std::string, std::size_t> positions;  ///< of a table's members, by name
    std::unordered_set<std::string> said;                    ///< those of them that the table says itself, not what it merges
  };

  std::string place(const YAML::Mark& mark) const { return where_ + ":" + std::to_string(mark.line + 1); }

  void open(const YAML::Mark& mark, YAML::anchor_t anchor, Node::Kind kind) {
    if (static_cast<int>(open_.size()) >= kMostDepth) fail("nested more than " + std::to_string(kMostDepth) + " deep", place(mark));
    Open next;
    next.node.kind = kind;
    next.node.where = place(mark);
    next.anchor = anchor;
    open_.push_back(std::move(next));
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    add(std::move(done.node), done.anchor);
  }

  void count(std::size_t values, const std::string& where) {
    values_ += values;
    if (values_ > kMostValues) fail("more than " + std::to_string(kMostValues) + " values, aliases unfolded", where);
  }

  void add(Node node, YAML::anchor_t anchor) {
    count(1 + (anchor != 0 ? size_of(node) : 0), node.where);  // what has a name is kept a second time
    if (anchor != 0) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.is_list()) {
      parent.node.members.emplace_back("", std::move(node));
    } else if (!parent.has_key) {
      if (!node.is_scalar() && !node.is_null()) fail("a table's key is a list or a table", node.where);
      parent.key = node.text;
      parent.has_key = true;
    } else {
      parent.has_key = false;
      put(parent, parent.key, std::move(node));
    }
  }

  /// `<<` merges a table, or several, whose names do not stand before what is said here.
  void put(Open& table, const std::string& key, Node value) {
    if (key == "<<" && (value.is_table() || value.is_list())) {
      if (value.is_list()) {
        for (auto& [name, one] : value.members) put(table, key, std::move(one));
        return;
      }
      for (auto& [name, member] : value.members) (void)insert(table, name, std::move(member));
      return;
    }
    Node& member = insert(table, key, Node());
    if (!table.said.insert(key).second) require_same(key, member, value);
    member = std::move(value);
  }

  /// Of two values of a key PyYAML takes the last and OmegaConf none: neither is what somebody meant who wrote both.
  static void require_same(const std::string& key, const Node& first, const Node& second) {
    const bool same = first.kind == second.kind && !first.is_table() && !first.is_list() && first.text == second.text;
    if (same) return;
    const std::size_t colon = first.where.rfind(':');
    fail("'" + key.substr(0, 60) + "' has two values, the other in line " + first.where.substr(colon + 1), second.where, "keep one");
  }

  /// The member of that name; `value` where the table had none.
  static Node& insert(Open& table, const std::string& name, Node value) {
    auto& members = table.node.members;
    const auto [at, is_new] = table.positions.emplace(name, members.size());
    if (is_new) members.emplace_back(name, std::move(value));
    return members[at->second].second;
  }

  std::string where_;
  YAML::Mark last_scalar_;
  Node root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Node> anchors_;
  std::size_t values_ = 0;
  int documents_ = 0;
};

/// Whether a quote is opened at a mark and closed nowhere behind it; yaml-cpp takes the rest of the text for what is quoted.
bool lacks_closing_quote(const std::string& text, const YAML::Mark& mark) {
  std::size_t at = 0;
  for (int i = 0; i < mark.line; ++i) at = text.find('\n', at) + 1;  // npos + 1 is 0
  at += static_cast<std::size_t>(mark.column);
  if (at >= text.size() || (text[at] != '"' && text[at] != '\'')) return false;
  const char quote = text[at];
  for (++at; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (text[at] == quote) {
      if (quote == '"' || at + 1 >= text.size() || text[at + 1] != quote) return false;
      ++at;
    }
  }
  return true;
}

}  // namespace

Node parse_yaml_text(const std::string& text, const std::string& where) {
  std::istringstream stream(text);
  TreeBuilder builder(where);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    fail("no YAML: " + error.msg, where + ":" + std::to_string(error.mark.line + 1));
  }
  if (const YAML::Mark& mark = builder.last_scalar(); lacks_closing_quote(text, mark))
    fail("no YAML: the quote that is opened here is not closed", where + ":" + std::to_string(mark.line + 1));
  return builder.take();
}

}  // namespace plimsoll::formats

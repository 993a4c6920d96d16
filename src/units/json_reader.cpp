#include "units/json_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "plimsoll/error.hpp"
#include "plimsoll/printable.hpp"
#include "plimsoll/units.hpp"
#include "units/files.hpp"

namespace plimsoll {

namespace detail {

/// A document may be read by several threads: what reading changes of it is atomic.
struct JsonNode {
  using Index = std::unordered_map<std::string_view, const JsonNode*>;
  enum class Kind : std::uint8_t { null, boolean, integer, real, text, array, object } kind = Kind::null;
  mutable std::atomic<bool> read = false;
  std::int64_t integer = 0;  // boolean, integer
  double real = 0;
  std::string text;
  std::string key;         // name within the parent object
  std::int64_t index = 0;  // position within the parent
  const JsonNode* parent = nullptr;
  const std::string* document = nullptr;  // name of the text
  std::vector<const JsonNode*> children;
  mutable std::atomic<const Index*> by_key = nullptr;  // of a large object, once it is asked

  JsonNode() = default;
  JsonNode(const JsonNode&) = delete;
  JsonNode& operator=(const JsonNode&) = delete;
  ~JsonNode() { delete by_key.load(); }
  void note_read() const { read.store(true, std::memory_order_relaxed); }
  const Index& index_by_key() const;
};

}  // namespace detail

namespace {

using detail::JsonNode;
using Kind = JsonNode::Kind;

constexpr std::size_t kShownText = 40;

std::string shortened(const std::string& text) {
  if (text.size() <= kShownText) return text;
  std::size_t cut = kShownText;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0U) == 0x80U) --cut;  // not within a UTF-8 sequence
  return text.substr(0, cut) + "…";
}

std::string shown(const JsonNode& node) {
  switch (node.kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return node.integer != 0 ? "true" : "false";
    case Kind::integer:
      return fmt::format("{}", node.integer);
    case Kind::real:
      return fmt::format("{:.6g}", node.real);
    case Kind::text:
      return "\"" + shortened(node.text) + "\"";
    case Kind::array:
      return fmt::format("an array of {}", node.children.size());
    case Kind::object:
      return "an object";
  }
  return {};
}

std::string line_and_column(std::string_view text, std::size_t offset) {
  const auto head = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(head.begin(), head.end(), '\n');
  const std::size_t start = head.rfind('\n');
  const std::size_t column = head.size() - (start == std::string_view::npos ? 0 : start + 1);
  return fmt::format("{}:{}", line, std::max<std::size_t>(column, 1));
}

/// Builds nodes from nlohmann's events; refuses what the limits and the format forbid.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::deque<JsonNode>& nodes, const std::string& where, std::string_view text, const JsonLimits& limits)
      : nodes_(nodes), where_(where), text_(text), limits_(limits) {}

  bool null() override { return add(Kind::null), true; }
  bool boolean(bool value) override { return add(Kind::boolean).integer = value ? 1 : 0, true; }
  bool number_integer(number_integer_t value) override { return add(Kind::integer).integer = value, true; }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<number_unsigned_t>(INT64_MAX)) return number_integer(static_cast<number_integer_t>(value));
    return add(Kind::real).real = static_cast<double>(value), true;
  }
  bool number_float(number_float_t value, const string_t& written) override {
    if (!std::isfinite(value)) fail("the number " + shortened(written) + " is beyond a double", where_);
    return add(Kind::real).real = value, true;
  }
  bool string(string_t& value) override { return add(Kind::text).text = std::move(value), true; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Kind::object); }
  bool start_array(std::size_t) override { return open(Kind::array); }
  bool end_object() override { return open_.pop_back(), true; }
  bool end_array() override { return open_.pop_back(), true; }

  bool key(string_t& name) override {
    constexpr std::size_t kMostMembers = 20'000;  // no config, strategy or device has as many
    if (open_.back().names.size() >= kMostMembers) fail(fmt::format("an object of more than {} keys", kMostMembers), place_of(*open_.back().node));
    if (!open_.back().names.insert(name).second) fail("the key \"" + shortened(name) + "\" is given twice", place_of(*open_.back().node));
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::json::exception& error) override {
    const std::string where = where_ + ":" + line_and_column(text_, position);
    if (error.id == 406) fail("the number " + shortened(token) + " is beyond a double", where);
    const bool not_finite =
        position > 0 && position <= text_.size() && std::string_view("NI").find(text_[position - 1]) != std::string_view::npos;
    if (not_finite) fail("NaN and Infinity are no JSON numbers", where);
    if (position > text_.size()) fail("the JSON text ends too early", where);
    fail("this is no valid JSON: " + reason(error.what()), where);
  }

 private:
  static std::string place_of(const JsonNode& node) { return JsonValue(&node).where(); }

  // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while parsing value - invalid literal; last read: …"
  static std::string reason(const std::string& what) {
    const std::size_t dash = what.find(" - ");
    std::string text = dash == std::string::npos ? "syntax error" : what.substr(dash + 3);
    text = text.substr(0, text.find("; last read"));
    const bool readable = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7F; });
    return readable ? text : "syntax error";
  }

  JsonNode& add(Kind kind) {
    if (static_cast<std::int64_t>(nodes_.size()) >= limits_.values)
      fail(fmt::format("the text holds more than {} values", limits_.values), where_);
    JsonNode& node = nodes_.emplace_back();
    node.kind = kind;
    node.document = &where_;
    if (!open_.empty()) {
      JsonNode& parent = *open_.back().node;
      node.parent = &parent;
      node.index = static_cast<std::int64_t>(parent.children.size());
      node.key = std::move(key_);
      key_.clear();
      parent.children.push_back(&node);
    }
    return node;
  }

  bool open(Kind kind) {
    if (static_cast<int>(open_.size()) >= limits_.depth) fail(fmt::format("values are nested more than {} deep", limits_.depth), where_);
    JsonNode& node = add(kind);
    open_.push_back({&node, {}});
    return true;
  }

  std::deque<JsonNode>& nodes_;
  const std::string& where_;
  std::string_view text_;
  JsonLimits limits_;
  struct Open {
    JsonNode* node;
    std::unordered_set<std::string> names;  // of an object's members so far
  };
  std::vector<Open> open_;
  std::string key_;
};

}  // namespace

/// Made by whoever asks first; of two threads that do so at once, one throws its own away.
const detail::JsonNode::Index& detail::JsonNode::index_by_key() const {
  if (const Index* known = by_key.load(std::memory_order_acquire)) return *known;
  auto made = std::make_unique<Index>();
  for (const JsonNode* member : children) made->emplace(member->key, member);
  const Index* known = nullptr;
  if (by_key.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *known;
}

namespace {

const JsonNode* child(const JsonNode& node, std::string_view key) {
  constexpr std::size_t kFewMembers = 24;
  if (node.children.size() > kFewMembers) {
    const JsonNode::Index& index = node.index_by_key();
    const auto found = index.find(key);
    return found == index.end() ? nullptr : found->second;
  }
  const auto found = std::find_if(node.children.begin(), node.children.end(), [&](const JsonNode* member) { return member->key == key; });
  return found == node.children.end() ? nullptr : *found;
}

void collect_unread(const JsonNode& node, const std::string& pointer, std::vector<std::string>& unread) {
  for (const JsonNode* member : node.children) {
    const std::string name = node.kind == Kind::array ? fmt::format("{}", member->index) : pointer_token(member->key);
    const std::string path = pointer.empty() ? name : pointer + "/" + name;
    if (!member->read.load(std::memory_order_relaxed))
      unread.push_back(path);
    else if (member->kind == Kind::object || member->kind == Kind::array)
      collect_unread(*member, path, unread);
  }
}

void refuse_controls(const JsonNode& node) {
  if (printable(node.key) != node.key || (node.kind == Kind::text && printable(node.text) != node.text))
    fail("a name or a text has control characters", JsonValue(&node).where(), "write it on one line, without \\u00.. and \\n");
  for (const JsonNode* member : node.children) refuse_controls(*member);
}

void mark(const JsonNode& node) {
  node.note_read();
  for (const JsonNode* member : node.children) mark(*member);
}

}  // namespace

bool JsonValue::is_null() const { return node_->kind == Kind::null; }
bool JsonValue::is_boolean() const { return node_->kind == Kind::boolean; }
bool JsonValue::is_integer() const { return node_->kind == Kind::integer; }
bool JsonValue::is_number() const { return node_->kind == Kind::integer || node_->kind == Kind::real; }
bool JsonValue::is_text() const { return node_->kind == Kind::text; }
bool JsonValue::is_array() const { return node_->kind == Kind::array; }
bool JsonValue::is_object() const { return node_->kind == Kind::object; }

std::int64_t JsonValue::integer(std::int64_t least, std::int64_t most) const {
  if (node_->kind != Kind::integer || node_->integer < least || node_->integer > most)
    expected(fmt::format("an integer from {} to {}", least, most));
  return node_->integer;
}

double JsonValue::number(double least, double most) const {
  const double value = node_->kind == Kind::integer ? static_cast<double>(node_->integer) : node_->real;
  if (!is_number() || value < least || value > most) expected(fmt::format("a number from {:.15g} to {:.15g}", least, most));
  return value;
}

bool JsonValue::boolean() const {
  if (node_->kind != Kind::boolean) expected("true or false");
  return node_->integer != 0;
}

const std::string& JsonValue::text() const {
  if (node_->kind != Kind::text) expected("a text");
  return node_->text;
}

std::vector<JsonValue> JsonValue::elements() const {
  if (!is_array() && !is_object()) expected("an array");
  std::vector<JsonValue> values;
  for (const JsonNode* member : node_->children) {
    member->note_read();
    values.emplace_back(member);
  }
  return values;
}

std::size_t JsonValue::size() const {
  if (!is_array() && !is_object()) expected("an array");
  return node_->children.size();
}

JsonValue JsonValue::at(std::size_t index) const {
  if (!is_array() || index >= node_->children.size()) expected(fmt::format("an array of at least {} elements", index + 1));
  node_->children[index]->note_read();
  return JsonValue(node_->children[index]);
}

std::vector<std::string> JsonValue::keys() const {
  if (!is_object()) expected("an object");
  std::vector<std::string> names;
  for (const JsonNode* member : node_->children) names.push_back(member->key);
  return names;
}

bool JsonValue::has(std::string_view key) const {
  if (!is_object()) expected("an object");
  return child(*node_, key) != nullptr;
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (!is_object()) expected("an object");
  const JsonNode* member = child(*node_, key);
  if (member == nullptr) return std::nullopt;
  member->note_read();
  return JsonValue(member);
}

JsonValue JsonValue::operator[](std::string_view key) const {
  if (const auto member = find(key)) return *member;
  const std::string near = nearest_name(key, keys());
  fail(fmt::format("the key \"{}\" is missing", key), where(),
       near.empty() ? "" : fmt::format("is \"{}\" meant to be it?", shortened(near)));
}

std::string JsonValue::where() const {
  std::string pointer;
  for (const JsonNode* node = node_; node->parent != nullptr; node = node->parent)
    pointer = "/" + (node->parent->kind == Kind::array ? fmt::format("{}", node->index) : pointer_token(shortened(node->key))) + pointer;
  return pointer.empty() ? *node_->document : *node_->document + "#" + pointer;
}

std::vector<std::string> JsonValue::unread_keys() const {
  std::vector<std::string> unread;
  collect_unread(*node_, "", unread);
  return unread;
}

void JsonValue::check_printable() const { refuse_controls(*node_); }

void JsonValue::mark_read() const { mark(*node_); }

void JsonValue::expected(const std::string& what) const { fail("expected " + what + ", found " + shown(*node_), where()); }

struct JsonDocument::Store {
  std::string where;
  std::deque<JsonNode> nodes;  // grows without moving: nodes point at each other
};

JsonDocument::JsonDocument(std::unique_ptr<Store> store) : store_(std::move(store)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

JsonDocument JsonDocument::parse(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (static_cast<std::int64_t>(text.size()) > limits.text_bytes)
    fail(fmt::format("a text of {} is too large (at most {})", to_string(Bytes(static_cast<std::int64_t>(text.size()))),
                     to_string(Bytes(limits.text_bytes))),
         where);
  auto store = std::make_unique<Store>();
  store->where = where;
  Builder builder(store->nodes, store->where, text, limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return JsonDocument(std::move(store));
}

JsonDocument JsonDocument::read_file(const std::string& path, const JsonLimits& limits) {
  return parse(read_text_file(path, limits.text_bytes), path, limits);
}

JsonValue JsonDocument::root() const { return JsonValue(&store_->nodes.front()); }

std::string pointer_token(std::string_view key) {
  std::string token;
  for (const char c : key) token += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return token;
}

}  // namespace plimsoll

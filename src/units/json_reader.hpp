// The one JSON reader of every room: configs, hardware files, strategies, measured rows and foreign formats go through it.
//
// A hostile or damaged file costs a clear Error and little memory: a file is refused by its size before it is read, nesting and the
// number of values are bounded, text is checked to be UTF-8, NaN and Infinity, duplicate keys and numbers beyond a double are refused.
// Every read is typed and range-checked, names its place as file and JSON pointer ("config.json#/rope_scaling/factor"), and is noted,
// so that the keys that nothing read can be reported.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

namespace detail {
struct JsonNode;
}

/// What a text may cost before it is refused.
struct JsonLimits {
  std::int64_t text_bytes = std::int64_t{16} << 20;
  std::int64_t values = 1'000'000;
  int depth = 64;
};

/// One value of a document, and where it stands. Cheap to copy; valid while its JsonDocument lives.
class JsonValue {
 public:
  explicit JsonValue(const detail::JsonNode* node) : node_(node) {}

  bool is_null() const;
  bool is_boolean() const;
  /// A number without a fraction within 63 bits; 4096.0 is none.
  bool is_integer() const;
  bool is_number() const;
  bool is_text() const;
  bool is_array() const;
  bool is_object() const;

  /// The value as an integer from `least` to `most` (both included). Throws Error: another type, a fraction, out of range.
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  /// The value as a finite number from `least` to `most`.
  double number(double least, double most) const;
  bool boolean() const;
  const std::string& text() const;

  /// Array: the elements. Object: the values, in the order of the text. Throws Error for a scalar.
  std::vector<JsonValue> elements() const;
  std::size_t size() const;
  /// Element `index` of an array. Throws Error when there is none.
  JsonValue at(std::size_t index) const;

  /// Names of an object's members, in the order of the text. Throws Error when this is no object.
  std::vector<std::string> keys() const;
  bool has(std::string_view key) const;
  /// The member of that name, or nothing. A member that is null is given: its meaning is the caller's.
  std::optional<JsonValue> find(std::string_view key) const;
  /// The member of that name. Throws Error when it is missing, naming the member that was perhaps meant.
  JsonValue operator[](std::string_view key) const;

  /// "config.json#/rope_scaling/factor"; the root is the bare name of the text.
  std::string where() const;
  /// Keys below this value that nothing has read, as pointers without the leading slash ("rope_scaling/factor"), in order.
  std::vector<std::string> unread_keys() const;
  /// Notes this value and all below it as read.
  void mark_read() const;
  /// Throws Error where a key or a text in it has control characters: printed, it would command a terminal or forge a line of a report.
  void check_printable() const;
  /// Throws Error: expected `what`, found the value (shortened).
  [[noreturn]] void expected(const std::string& what) const;

 private:
  const detail::JsonNode* node_;
};

/// A parsed text, and the owner of its values.
class JsonDocument {
 public:
  /// Parses `text`; `where` names it in errors. Throws Error with line and column.
  static JsonDocument parse(std::string_view text, const std::string& where, const JsonLimits& limits = {});
  /// Reads and parses a file. Throws Error: missing, unreadable, a folder, too large (told from its size, before reading).
  static JsonDocument read_file(const std::string& path, const JsonLimits& limits = {});

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  JsonValue root() const;

 private:
  struct Store;
  explicit JsonDocument(std::unique_ptr<Store> store);
  std::unique_ptr<Store> store_;
};

/// "/" and "~" of a key, escaped as in a JSON pointer.
std::string pointer_token(std::string_view key);

}  // namespace plimsoll

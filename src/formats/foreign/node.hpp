// One value of a foreign text, whatever the text's syntax was: JSON, YAML, TOML and argument lists all become trees of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll::formats {

/// A value and where it stands ("args.yaml:12", "ds.json#/zero_optimization/stage").
struct Node {
  enum class Kind : std::uint8_t { null, scalar, list, table };

  Kind kind = Kind::null;
  bool quoted = false;  ///< of a scalar: text even where it looks like a number, a truth or nothing
  std::string text;     ///< of a scalar; truths are "true" and "false" unless quoted
  std::string where;
  std::vector<std::pair<std::string, Node>> members;  ///< of a table by name and in order, of a list without names

  Node();  ///< null. Defined elsewhere: pairs of a Node ask for it before they are complete, and its members are such pairs

  bool is_null() const { return kind == Kind::null; }
  bool is_scalar() const { return kind == Kind::scalar; }
  bool is_table() const { return kind == Kind::table; }
  bool is_list() const { return kind == Kind::list; }

  /// The member at a dotted path ("training.local_batch_size"), or nullptr.
  const Node* find(std::string_view path) const;
  /// A scalar as it stands, a list as "a,b,c". Throws Error for a table.
  std::string word() const;
  /// Sets the member at a dotted path, making the tables above it.
  void set(std::string_view path, Node value);

  static Node scalar(std::string text, std::string where, bool quoted = false);
  static Node table(std::string where);
};

/// Whether a value holds a reference that its file does not settle.
bool is_unresolved(const Node& value);

/// Says of a whole tree that it stands at one place: JSON within a line.
void relocate(Node& tree, const std::string& where);

/// The value of a key that says something; nothing where it is absent or null.
const Node* stated(const Node& tree, const char* key);

/// Whether a switch is on; absent or null: it is not. Throws Error for what is neither on nor off.
bool is_on(const Node* value);

/// What a text may cost before it is refused: texts of configurations are short.
inline constexpr std::int64_t kMostText = std::int64_t{4} << 20;
inline constexpr std::size_t kMostValues = 200'000;
inline constexpr int kMostDepth = 64;

/// A text without a byte order mark and with line ends of "\n" alone.
std::string plain_text(std::string_view text);

/// The text of a file, at most kMostText bytes, plain. Throws Error: missing, unreadable, a folder, too large.
std::string read_plain(const std::string& path);

/// Each parses a whole text; `where` names it. Throws Error with the line: no such syntax, deeper than kMostDepth, more than kMostValues.
Node parse_json_text(const std::string& text, const std::string& where);
/// Anchors are copied where they are used, so a text that would unfold beyond kMostValues, or into itself, is refused. Only the first
/// document.
Node parse_yaml_text(const std::string& text, const std::string& where);
Node parse_toml_text(const std::string& text, const std::string& where);

/// Puts the values of ${path} in the place of their references, as OmegaConf does: torchtune, llm-foundry. References to an environment
/// ("${oc.env:X}", "${X:default}") give their default; a reference to what the file has not stays as it is, for many name a folder that
/// matters nothing. Throws Error: a circle.
void resolve_references(Node& root);

}  // namespace plimsoll::formats

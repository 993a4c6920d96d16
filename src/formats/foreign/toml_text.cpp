#define TOML_HEADER_ONLY 1
// toml++ 3.3 asserts that a table's name begins like one, and right behind says what is wrong where it does not: "[%a]". The assertion must
// neither end the program nor, which it does where NDEBUG is defined, have clang take it for granted.
#define TOML_ASSERT(condition) static_assert(true)
#undef NDEBUG
#include <fmt/format.h>
#include <toml++/toml.h>

#include "formats/foreign/node.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

class TomlReader {
 public:
  explicit TomlReader(std::string where) : where_(std::move(where)) {}

  Node read(const toml::node& value, int depth = 0) {
    const std::string place = where_ + ":" + std::to_string(value.source().begin.line);
    if (depth > kMostDepth) fail("nested more than " + std::to_string(kMostDepth) + " deep", place);
    if (++values_ > kMostValues) fail("more than " + std::to_string(kMostValues) + " values", place);
    if (const auto* table = value.as_table()) {
      Node node = Node::table(place);
      for (const auto& [key, member] : *table) node.members.emplace_back(std::string(key.str()), read(member, depth + 1));
      return node;
    }
    if (const auto* array = value.as_array()) {
      Node node = Node::table(place);
      node.kind = Node::Kind::list;
      for (const auto& member : *array) node.members.emplace_back("", read(member, depth + 1));
      return node;
    }
    if (const auto text = value.value_exact<std::string>()) return Node::scalar(*text, place, true);
    if (const auto whole = value.value_exact<std::int64_t>()) return Node::scalar(std::to_string(*whole), place);
    if (const auto number = value.value_exact<double>()) return Node::scalar(fmt::format("{}", *number), place);
    if (const auto truth = value.value_exact<bool>()) return Node::scalar(*truth ? "true" : "false", place);
    return Node::scalar("a date", place, true);
  }

 private:
  std::string where_;
  std::size_t values_ = 0;
};

}  // namespace

Node parse_toml_text(const std::string& text, const std::string& where) {
  try {
    const toml::table table = toml::parse(text, where);
    return TomlReader(where).read(table);
  } catch (const toml::parse_error& error) {
    fail("no TOML: " + std::string(error.description()), where + ":" + std::to_string(error.source().begin.line));
  }
}

}  // namespace plimsoll::formats

#define TOML_HEADER_ONLY 1
// toml++ 3.3 asserts that a table's name begins like one, and right behind says what is wrong where it does not: "[%a]". The assertion must
// neither end the program nor, which it does where NDEBUG is defined, have clang take it for granted.
#define TOML_ASSERT(condition) static_assert(true)
#undef NDEBUG
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "formats/foreign/node.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

/// What toml++ 3.3 does not bound or does not bear: it walks tables by recursion, as deep as dotted keys go, and names outside ASCII, which
/// TOML 1.0 wants in quotes, reach undefined behaviour in it. Strings and comments may hold anything.
class TomlOutline {
 public:
  TomlOutline(const std::string& text, const std::string& where) : text_(text), where_(where) {}

  void check() {
    while (at_ < text_.size()) step();
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '"' || c == '\'') return skip_string(c);
    ++at_;
    if (c == '#') return skip_to_line_end();
    if (static_cast<unsigned char>(c) >= 0x80) refuse("a name outside of ASCII needs quotes");
    if (c == '\n') return end_line();
    if (c == '[' && open_.empty() && line_is_empty_) header_ = 0, in_header_ = true;
    if (c == '[' || c == '{') open_.push_back(key_), key_ = 1;
    if ((c == ']' || c == '}') && !open_.empty()) close();
    if (c == ',') key_ = 1;
    if (c == '.') ++key_;
    if (depth() > kMostDepth) refuse("nested more than " + std::to_string(kMostDepth) + " deep");
    line_is_empty_ = line_is_empty_ && (c == ' ' || c == '\t' || c == '\r');
  }

  void close() {
    if (in_header_) header_ = std::max(header_, key_);
    key_ = open_.back();
    open_.pop_back();
  }

  void end_line() {
    ++line_;
    if (in_header_) open_.clear();
    in_header_ = false;
    if (open_.empty()) key_ = 1, line_is_empty_ = true;
  }

  int depth() const { return std::accumulate(open_.begin(), open_.end(), header_ + key_); }

  void skip_to_line_end() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  void skip_string(char quote) {
    line_is_empty_ = false;
    const std::string three(3, quote);
    const bool is_long = text_.compare(at_, 3, three) == 0;
    at_ += is_long ? 3 : 1;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') {
        if (!is_long) return;  // the library says what is wrong with it
        ++line_;
      }
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) {
        if (text_[++at_] == '\n') ++line_;
        continue;
      }
      if (is_long ? text_.compare(at_, 3, three) == 0 : text_[at_] == quote) break;
    }
    at_ = std::min(text_.size(), at_ + (is_long ? 3 : 1));
  }

  [[noreturn]] void refuse(const std::string& why) const { fail(why, where_ + ":" + std::to_string(line_)); }

  const std::string& text_;
  const std::string& where_;
  std::size_t at_ = 0;
  int line_ = 1, header_ = 0, key_ = 1;  // parts of the table's name and of a key's
  std::vector<int> open_;                // of each open bracket the parts of the key before it
  bool line_is_empty_ = true, in_header_ = false;
};

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
  TomlOutline(text, where).check();
  try {
    const toml::table table = toml::parse(text, where);
    return TomlReader(where).read(table);
  } catch (const toml::parse_error& error) {
    fail("no TOML: " + std::string(error.description()), where + ":" + std::to_string(error.source().begin.line));
  }
}

}  // namespace plimsoll::formats

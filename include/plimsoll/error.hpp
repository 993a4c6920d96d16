/// The one error type: thrown by readers and validation, caught at the edges (CLI, C function).
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

enum class ErrorCode {
  bad_input,    ///< a file, flag or value is wrong
  refused,      ///< understood, but plimsoll cannot model it: named, never approximated
  internal,     ///< a defect of plimsoll
};

/// What was read, where, what was expected, and the nearest valid name.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string message, std::string where = {}, std::string hint = {});

  ErrorCode code() const { return code_; }
  /// What is wrong, without the place.
  const std::string& message() const { return message_; }
  /// File and JSON pointer or line ("config.json#/hidden_size"), or empty.
  const std::string& where() const { return where_; }
  /// What to do, or the nearest valid name; may be empty.
  const std::string& hint() const { return hint_; }
  /// The same error with a place in front of the one it has (a reader that knows the file adds it).
  Error at(std::string_view outer) const;

 private:
  ErrorCode code_;
  std::string message_, where_, hint_;
};

[[noreturn]] void fail(std::string message, std::string where = {}, std::string hint = {});
[[noreturn]] void refuse(std::string message, std::string where = {}, std::string hint = {});

/// The candidate nearest to `name` by edit distance, or empty when none is near enough to be meant.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);
/// The same, at most `most_edits` letters away.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates, std::size_t most_edits);
/// "did you mean 'X'?" or, when nothing is near, "one of: a, b, c".
std::string suggest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace plimsoll

// Patterns of bash: of `case`, of [[ == ]] and of ${x#…}; and POSIX's extended regular expressions of [[ =~ ]].
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::formats::shell {

/// What matching may cost, in steps, over a whole script.
class Effort {
 public:
  explicit Effort(std::size_t most) : left_(most) {}
  /// Throws Error: more than a script is worth.
  void spend(std::size_t steps);

 private:
  std::size_t left_;
};

/// Characters that mean something in a pattern.
bool is_special(char c);
/// The text as a pattern that matches itself alone.
std::string escaped(std::string_view text);
/// Whether an unescaped * ? [ or extended pattern stands in it.
bool has_pattern(std::string_view pattern);
/// The pattern without its backslashes.
std::string unescaped(std::string_view pattern);

/// Whether the whole text is of the pattern: * ? […] and ?(…) *(…) +(…) @(…) !(…); a backslash takes a character's meaning.
bool matches(std::string_view pattern, std::string_view text, Effort& effort);

/// The first match of an extended regular expression and its brackets; nullopt: none. Throws Error: no such expression, or one that is too
/// long or counts too far.
std::optional<std::vector<std::string>> matched_by_expression(const std::string& expression, const std::string& text, Effort& effort);

}  // namespace plimsoll::formats::shell

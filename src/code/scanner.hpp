// Tokens of a Python text (docs.python.org/3/reference/lexical_analysis.html), blocks told by their indentation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "code/syntax.hpp"

namespace plimsoll::code {

struct Token {
  enum class Kind : std::uint8_t { name, number, text, sign, newline, indent, dedent, end } kind = Kind::end;
  std::string_view text;  ///< as it stands; of a text what is between its quotes
  Place place;
  bool raw = false, formatted = false;  ///< of a text

  bool is(std::string_view what) const { return (kind == Kind::sign || kind == Kind::name) && text == what; }
};

/// The text's tokens, the last of which is `end`. They refer to `text`. Throws Error: a quote or bracket without an end, indentation that
/// fits no block, a character that Python has no use for, a text of more than 4 MiB.
std::vector<Token> scan(const std::string& text, const std::string& where);

}  // namespace plimsoll::code

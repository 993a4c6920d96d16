/// Names that somebody else chose (a path, a model's name, a word of a command line) in comments, scripts, on terminals and in pages.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

/// The text on one line, without what a terminal obeys or a reader takes for something else: C0 and C1 controls, DEL, and Unicode's line
/// ends and marks of direction become '?'.
std::string printable(std::string_view text);

/// The text as one word of a shell's line, printable: in single quotes where it is more than letters, digits and "_@%+=:,./-".
std::string shell_word(std::string_view text);

}  // namespace plimsoll

// Characters that a backslash names, and texts in quotes that a shell reads back.
#pragma once

#include <cstdint>
#include <string>

namespace plimsoll::formats::shell {

enum class Escapes : std::uint8_t {
  quoted,  ///< $'…': also \' and \"
  printed  ///< echo -e and printf's %b: also \0NNN
};
/// The text with \n, \t, \x41, \101 … taken.
std::string with_escapes(const std::string& text, Escapes kind);
/// The text as ${x@Q} and printf's %q write it.
std::string in_quotes(const std::string& text);

/// One past the end of (( … )) whose `front` first characters open it; npos: its brackets are no arithmetic's.
std::size_t end_of_arithmetic(const std::string& text, std::size_t at, std::size_t front, const std::string& where);

}  // namespace plimsoll::formats::shell

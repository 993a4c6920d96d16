/// What the standard's strings leave out until C++23.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

namespace plimsoll {

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// ASCII letters in lower case.
inline std::string lower(std::string_view text) {
  std::string lowered(text);
  for (char& letter : lowered) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return lowered;
}

}  // namespace plimsoll

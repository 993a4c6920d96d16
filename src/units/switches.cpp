#include "units/switches.hpp"

#include <algorithm>
#include <cctype>

namespace plimsoll {

std::optional<bool> switch_of(std::string_view text) {
  const auto is = [&](std::string_view word) {
    return std::equal(text.begin(), text.end(), word.begin(), word.end(),
                      [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
  };
  if (is("true") || is("on") || is("yes")) return true;
  if (is("false") || is("off") || is("no")) return false;
  return {};
}

std::optional<bool> truth_of_number(std::string_view text) {
  if (text != "1" && text != "0") return {};
  return text == "1";
}

}  // namespace plimsoll

// How people write that something is on.
#pragma once

#include <optional>
#include <string_view>

namespace plimsoll {

inline constexpr const char* kSwitchWords = "true, false, on, off, yes or no";

/// true, on, yes; false, off, no; in any case. Nothing for every other text.
std::optional<bool> switch_of(std::string_view text);

/// Python's truth of a number where a switch is meant: of 1 and 0. Nothing for every other text.
std::optional<bool> truth_of_number(std::string_view text);

}  // namespace plimsoll

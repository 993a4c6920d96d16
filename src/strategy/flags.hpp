// Options of a strategy as people type them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace plimsoll {

/// "--tp 8 --pp-schedule 1f1b": values with a space stand in quotes.
std::string as_flags(const std::vector<std::pair<std::string, std::string>>& options);

}  // namespace plimsoll

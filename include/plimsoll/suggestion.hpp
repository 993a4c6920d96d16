/// What was perhaps meant by a name that nothing has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// "did you mean 'X'?": the candidates that begin so, else the nearest one, else those that hold the name; empty where there is none.
/// Capitals count as small letters. `nearest_name` and `suggest` are in plimsoll/error.hpp.
std::string meant(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace plimsoll

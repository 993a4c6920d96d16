/// What a published source's own launch scripts fix and no row of it repeats (models/recipes.json).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "units/json_reader.hpp"

namespace plimsoll::formats {

/// The row as JSON with the keys of its training and its model that its source's recipe gives and that it leaves out, or whose values it lists
/// as assumed; empty where no recipe applies or gives anything.
/// `assumed` gets a line for every key.
std::optional<std::string> completed_by_recipe(const JsonValue& row, std::vector<std::string>& assumed);

}  // namespace plimsoll::formats

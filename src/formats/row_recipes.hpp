/// What a published source's own launch scripts fix and no row of it repeats (models/recipes.json).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "units/json_reader.hpp"

namespace plimsoll::formats {

/// The row as JSON with the absent keys of its training that its source's recipe gives, and those that the row lists as assumed where the
/// recipe corrects them (`corrects_assumed`); empty where no recipe applies or nothing is taken from it.
/// `assumed` gets a line for every key.
std::optional<std::string> completed_by_recipe(const JsonValue& row, std::vector<std::string>& assumed);

}  // namespace plimsoll::formats

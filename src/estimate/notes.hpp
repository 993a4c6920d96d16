// What a reader must know to trust the numbers: how they were reached, what is not in them, why they look odd.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

std::vector<std::string> notes_of(const Report& report, const Model& model, const Strategy& resolved);

}  // namespace plimsoll::estimation

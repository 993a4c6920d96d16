// What a reader must know to trust the numbers: how they were reached, what is not in them, why they look odd.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

std::vector<std::string> notes_of(const Report& report, const Model& model, const Strategy& resolved);

/// Where the step of `played` stands in for that of `asked`: options are said not to be used that neither reads, for one that the other
/// reads may be why it stands there.
void note_idle_options_of_both(const Model& model, const Strategy& played, const Strategy& asked, std::vector<std::string>& notes);

/// Of a device that is not shipped: which of its numbers that a report names are assumed. Empty: none, or it is a shipped one.
std::string note_of_own_device(const std::vector<Origin>& origins, const Accelerator& device);

}  // namespace plimsoll::estimation

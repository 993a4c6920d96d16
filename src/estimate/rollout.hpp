#pragma once

#include <string>

#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

/// What a rollout engine beside the trainer makes of its share of the device, in words: the answers that its cache holds at once, how long a
/// step's take to be written. Empty: no such engine. Throws Error where the engine would not start in that share; what has no rule there is
/// said, and why.
std::string rollout_note(const Model& model, const Cluster& cluster, const Strategy& resolved);

}  // namespace plimsoll::estimation

#pragma once

#include <string>

#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

/// What a rollout engine takes of each of the trainer's devices.
struct EngineBytes {
  Bytes awake;    ///< its share of the whole; of a process of its own, with what that holds beside it
  Bytes resting;  ///< of that, while the trainer trains
};
/// Of a colocated engine; nothing where there is none.
EngineBytes engine_beside(const Model& model, const Cluster& cluster, const Strategy& resolved);

/// What a rollout engine beside the trainer makes of its share of the device, in words: the answers that its cache holds at once, how long a
/// step's take to be written. Empty: no such engine. Throws Error where the engine would not start in that share; what has no rule there is
/// said, and why.
std::string rollout_note(const Model& model, const Cluster& cluster, const Strategy& resolved);

}  // namespace plimsoll::estimation

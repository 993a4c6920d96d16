// Peak of allocated bytes by formulas, for what has no lowering yet: the maximum over the points of a step of what is alive there.
#pragma once

#include <vector>

#include "estimate/stages.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/memory.hpp"

namespace plimsoll::estimation {

/// The reading that the allocator's trace would give: `alloc_retries`, `forward_peak` and `peak_label` stay empty.
MemoryTrace closed_form_memory(const Model& model, const std::vector<Stage>& stages, int stage, const Cluster& cluster,
                               const Strategy& resolved);

}  // namespace plimsoll::estimation

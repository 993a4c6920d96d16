// Peak memory of one rank: its step played through the allocator where it can be lowered, else the closed forms.
#pragma once

#include <vector>

#include "estimate/stages.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"

namespace plimsoll::estimation {

/// Memory of a rank of pipeline stage `stage`.
RankMemory rank_memory(const Model& model, const std::vector<Stage>& stages, int stage, const Cluster& cluster, const Strategy& resolved);

}  // namespace plimsoll::estimation

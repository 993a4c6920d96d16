// Why a step takes its time: what its device waits for, in sentences, and what its collectives move.
#pragma once

#include "plimsoll/explain.hpp"

namespace plimsoll::estimation {

/// Fills `causes` and `collectives` of the explained rank, whose steady step is `rank`.
void find_causes(const RankTimeline& rank, const Pricing& pricing, const Strategy& resolved, Explanation& explanation);

}  // namespace plimsoll::estimation

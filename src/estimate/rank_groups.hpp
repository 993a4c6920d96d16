// Where the process groups of a rank lie on the cluster.
#pragma once

#include <array>

#include "plimsoll/play.hpp"
#include "plimsoll/strategy.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll::estimation {

/// Ranks are numbered tensor parallel first, then context, data (shards before replicas) and pipeline, as Megatron and torchtitan
/// number theirs; expert groups lie over the same ranks, expert-tensor parallel first. By Group.
std::array<RankGroup, kGroups> rank_groups(const Strategy& resolved);

/// What each of them gets from the cluster.
std::array<GroupShape, kGroups> group_shapes(const Strategy& resolved, const Topology& topology);

}  // namespace plimsoll::estimation

// The process groups that a rank communicates in.
#pragma once

#include <vector>

#include "memory/outside.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

/// Groups of more than one rank that a rank of a resolved strategy opens communicators for; pipelines and experts also exchange messages
/// with single peers. nanotron's are those of its ParallelContext, each set of ranks once.
std::vector<memory::ProcessGroup> communicating_groups(const Cluster& cluster, const Strategy& resolved);

}  // namespace plimsoll::estimation

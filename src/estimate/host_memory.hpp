#pragma once

#include <string>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

/// What the ranks of the fullest host keep in its memory, against what it has (hosts.json knows no such thing: the cluster's file, or the
/// strategy's host_memory).
HostMemory host_memory_of(const std::vector<RankReport>& ranks, const Model& model, const Cluster& cluster, const Strategy& resolved);

/// The same in words, where there is anything to say.
std::vector<std::string> host_notes(const HostMemory& host, const Model& model, const Cluster& cluster, const Strategy& resolved);

}  // namespace plimsoll::estimation

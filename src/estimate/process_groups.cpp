#include "estimate/process_groups.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>

#include "estimate/rank_groups.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll::estimation {
namespace {

using memory::ProcessGroup;

std::vector<ProcessGroup> groups_of_strategy(const Strategy& resolved) {
  const auto groups = rank_groups(resolved);
  std::vector<ProcessGroup> communicating;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto group = static_cast<Group>(i);
    if (group == Group::world) continue;
    if (group == Group::expert_data && resolved.ep <= 1) continue;  // the same ranks as the data-parallel group
    const std::int64_t ranks = groups[i].size;
    if (group == Group::data_replicate && ranks > resolved.dp_replicate) continue;  // the same ranks as those of the shards
    const std::int64_t peers = group == Group::pipeline ? std::min<std::int64_t>(2, ranks - 1) : group == Group::expert ? ranks - 1 : 0;
    if (ranks > 1) communicating.push_back({ranks, peers});
  }
  return communicating;
}

/// ParallelContext (parallel/context.py): the world, the ranks of a node, the tensor-, data- and pipeline-parallel ones and those of one
/// replica; ranks lie in the order tensor, data, pipeline. PyTorch 2.1 sends and receives in a communicator of each pair of ranks: the first
/// and the last stage, which hold most, have one neighbour.
std::vector<ProcessGroup> groups_of_nanotron(const Cluster& cluster, const Strategy& resolved) {
  const std::int64_t tp = std::max(resolved.tp, 1), dp = std::max(resolved.dp, 1), pp = std::max(resolved.pp, 1);
  std::set<std::array<std::int64_t, 3>> distinct;  // ranks along tensor, data and pipeline
  const auto add = [&](std::int64_t tensor, std::int64_t data, std::int64_t pipeline) {
    if (tensor * data * pipeline > 1) distinct.insert({tensor, data, pipeline});
  };
  add(tp, dp, pp);
  const std::int64_t node = std::min<std::int64_t>(tp * dp * pp, cluster.gpus_per_node);
  const std::int64_t node_tensor = std::min(tp, node), node_data = std::min(dp, node / node_tensor);
  add(node_tensor, node_data, std::min(pp, node / (node_tensor * node_data)));
  add(tp, 1, 1);
  add(1, dp, 1);
  add(1, 1, pp);
  add(tp, 1, pp);
  std::vector<ProcessGroup> groups;
  for (const auto& [tensor, data, pipeline] : distinct) groups.push_back({tensor * data * pipeline, 0});
  if (pp > 1) groups.push_back({2, 1});
  return groups;
}

}  // namespace

std::vector<ProcessGroup> communicating_groups(const Cluster& cluster, const Strategy& resolved) {
  return profile_of(resolved).code == ModelCode::nanotron ? groups_of_nanotron(cluster, resolved) : groups_of_strategy(resolved);
}

}  // namespace plimsoll::estimation

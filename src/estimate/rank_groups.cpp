#include "estimate/rank_groups.hpp"

#include <algorithm>

namespace plimsoll::estimation {
namespace {

std::int64_t at_least_one(int n) { return std::max(1, n); }

/// All data-parallel ranks hold the same, whatever names the framework has for their group.
bool replicates(DataParallel kind) { return kind == DataParallel::none || kind == DataParallel::ddp || kind == DataParallel::zero0; }

}  // namespace

std::array<RankGroup, kGroups> rank_groups(const Strategy& resolved) {
  const std::int64_t tp = at_least_one(resolved.tp), cp = at_least_one(resolved.cp), pp = at_least_one(resolved.pp);
  const std::int64_t ep = at_least_one(resolved.ep), etp = at_least_one(resolved.etp);
  const std::int64_t shard = at_least_one(resolved.dp_shard), replicas = at_least_one(resolved.dp_replicate);
  const std::int64_t per_stage = tp * cp * shard * replicas;
  std::array<RankGroup, kGroups> groups;
  const auto set = [&](Group group, std::int64_t size, std::int64_t stride) {
    groups[static_cast<std::size_t>(group)] = {0, size, stride};
  };
  set(Group::world, per_stage * pp, 1);
  set(Group::tensor, tp, 1);
  set(Group::context, cp, tp);
  set(Group::data_shard, shard * cp, tp);  // context-parallel ranks hold the same parameters and share their shards
  if (replicates(resolved.data_parallel))
    set(Group::data_replicate, shard * cp * replicas, tp);
  else
    set(Group::data_replicate, replicas, tp * cp * shard);
  set(Group::pipeline, pp, per_stage);
  set(Group::expert, ep, etp);
  set(Group::expert_data, std::max<std::int64_t>(1, per_stage / (ep * etp)), ep * etp);
  return groups;
}

std::array<GroupShape, kGroups> group_shapes(const Strategy& resolved, const Topology& topology) {
  std::array<GroupShape, kGroups> shapes;
  const auto groups = rank_groups(resolved);
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (groups[i].size > 1) shapes[i] = topology.group(groups[i]);
  return shapes;
}

}  // namespace plimsoll::estimation

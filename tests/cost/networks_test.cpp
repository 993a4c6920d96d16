// Collectives over AWS's network against what nanotron's runs measured before they trained (hardware/networks.json cites them): 1 GiB of
// fp32 over all GPUs of 8-GPU H100 nodes, lists of tensors gathered and scattered by torch.distributed, whose copies are part of the time.
#include <gtest/gtest.h>

#include "hardware/read_values.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll {
namespace {

constexpr std::int64_t kGib = std::int64_t{1} << 30;

double bus_bandwidth(CollectiveKind kind, int nodes) {
  Cluster cluster = parse_cluster(std::to_string(nodes) + "x8xh100-sxm");
  hardware::set_network(cluster.node.collectives, "EFA");
  const GroupShape group = Topology(cluster).group({0, nodes * 8, 1});
  const double sent = bytes_sent(kind, Bytes(kGib), group.size);
  return sent / price(Collective{kind, Group::world, kGib, DType::fp32}, group, cluster).value / 1e9;
}

TEST(Networks, RingsOverEfaPayForEveryMessage) {
  const std::pair<int, double> measured[] = {{4, 226}, {8, 176}, {16, 123}, {32, 77}, {64, 45}};
  for (const auto& [nodes, bandwidth] : measured) EXPECT_NEAR(bus_bandwidth(CollectiveKind::all_gather, nodes) / bandwidth, 1, 0.12) << nodes;
}

TEST(Networks, AllReducesOverEfaGoBySwitchesAtHalfTheNics) {
  const std::pair<int, double> measured[] = {{2, 428}, {4, 206}, {8, 187}, {16, 188}, {32, 194}, {64, 179}};
  for (const auto& [nodes, bandwidth] : measured) EXPECT_NEAR(bus_bandwidth(CollectiveKind::all_reduce, nodes) / bandwidth, 1, 0.15) << nodes;
}

TEST(Networks, OthersAreTheLibrarysOwn) {
  CollectiveLibrary library = parse_cluster("2x8xh100-sxm").node.collectives;
  const Seconds overhead = library.network_overhead;
  hardware::set_network(library, "InfiniBand");
  EXPECT_EQ(library.network_overhead.value, overhead.value);
  EXPECT_GT(library.ll_max[1].value.value, 0);
}

}  // namespace
}  // namespace plimsoll

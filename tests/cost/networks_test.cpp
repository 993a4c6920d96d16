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

TEST(Networks, AllReducesOverEfaGoBySwitchesAtAPartOfTheNics) {
  const std::pair<int, double> measured[] = {{2, 428}, {4, 206}, {8, 187}, {16, 188}, {32, 194}, {64, 179}};
  for (const auto& [nodes, bandwidth] : measured) EXPECT_NEAR(bus_bandwidth(CollectiveKind::all_reduce, nodes) / bandwidth, 1, 0.15) << nodes;
}

// floor(log2 16) = 4 levels, up and down: 25 + 2·4·(20.9 + 150) us where the switches of a node reduce, beside 20.9 in NCCL's table; the
// same 2·4·150 us more where two GPUs of a node have no switch and NCCL's trees are taken. Rings have no levels.
TEST(Networks, ALevelOfATreeTakesLongerOverEfa) {
  constexpr std::int64_t kNodes = 16;
  const auto latency = [](const CollectiveLibrary& library, int per_node, const std::string& algorithm) {
    const Cluster cluster = cluster_of("h100-sxm", kNodes * 8);
    GroupShape shape = Topology(cluster).group({0, kNodes * per_node, 8 / per_node});
    for (const ProtocolCost& cost : protocol_costs(CollectiveKind::all_reduce, shape, library))
      if (cost.algorithm == algorithm && cost.protocol == "Simple") return cost.latency.value * 1e6;
    return -1.0;
  };
  const CollectiveLibrary own = parse_cluster("16x8xh100-sxm").node.collectives;
  CollectiveLibrary efa = own;
  hardware::set_network(efa, "EFA");
  EXPECT_NEAR(latency(efa, 8, "nvls_tree"), 25 + 2 * 4 * (20.9 + 150), 1e-6);
  EXPECT_NEAR(latency(own, 8, "nvls_tree"), 25 + 2 * 4 * 20.9, 1e-6);
  EXPECT_NEAR(latency(efa, 2, "tree") - latency(own, 2, "tree"), 2 * 4 * 150, 1e-6);
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

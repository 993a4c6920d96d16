#include "plimsoll/topology.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <set>
#include <tuple>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

double gb(BytesPerSecond rate) { return rate.value / 1e9; }

// Full mesh, 48 of 64 GB/s per link: a group of j GPUs has j − 1 links per member (AMD documents 310-330 GB/s for eight).
TEST(Topology, MeshSubGroupsGetTheirOwnLinksOnly) {
  const Topology topology(parse_cluster("8xmi300x"));
  for (int j : {2, 4, 8}) {
    const GroupShape shape = topology.group({0, j, 1});
    EXPECT_NEAR(gb(shape.ring), 48.0 * (j - 1), 1e-6) << j;
    EXPECT_NEAR(gb(shape.all_to_all), 48.0 * (j - 1), 1e-6) << j;
    EXPECT_TRUE(shape.direct);
    EXPECT_EQ(shape.nodes, 1);
  }
  EXPECT_NEAR(gb(topology.group({0, 8, 1}).ring), 336, 1e-6);
  EXPECT_NEAR(gb(topology.group({0, 4, 1}).ring), 144, 1e-6);
  EXPECT_NEAR(gb(topology.group({0, 4, 2}).ring), 144, 1e-6);  // ranks 0, 2, 4, 6
}

// NVSwitch: a GPU's whole bandwidth reaches any partner, whatever the size of the group.
TEST(Topology, NvswitchIsIndependentOfTheGroup) {
  const Cluster cluster = parse_cluster("8xh100-sxm");
  const Topology topology(cluster);
  for (int j : {2, 4, 8}) {
    const GroupShape shape = topology.group({0, j, 1});
    EXPECT_NEAR(shape.ring.value, cluster.node.gpu_link.achieved.value.value, 1) << j;
    EXPECT_NEAR(shape.all_to_all.value, cluster.node.gpu_link.achieved.value.value, 1) << j;
    EXPECT_FALSE(shape.direct);
  }
}

// A group that spans nodes with j GPUs per node gets min(B_i, j·B_e): rings cross the nodes through the NICs of its members.
TEST(Topology, GroupsAcrossNodesAddTheirNics) {
  const Cluster cluster = parse_cluster("4x8xh100-sxm");
  const Topology topology(cluster);
  const double nic = cluster.node.nic.achieved.value.value, intra = cluster.node.gpu_link.achieved.value.value;
  const GroupShape world = topology.group({0, 32, 1});
  EXPECT_EQ(world.nodes, 4);
  EXPECT_EQ(world.per_node, 8);
  EXPECT_NEAR(world.ring.value, std::min(intra, 8 * nic), 1);
  EXPECT_NEAR(world.inter.value, nic, 1);
  // Tensor parallelism 8 inside the node: data-parallel groups have one member per node, each its own NIC, no contention.
  const GroupShape data = topology.group({3, 4, 8});
  EXPECT_EQ(data.per_node, 1);
  EXPECT_NEAR(data.ring.value, nic, 1);
  EXPECT_EQ(data.sharers, 1);
  // Stride 2: four members per node.
  EXPECT_NEAR(topology.group({0, 16, 2}).ring.value, std::min(intra, 4 * nic), 1);
}

// LUMI-G: 8 dies share 4 NICs. One member per node: two groups on every NIC; eight members: all NICs for one group.
TEST(Topology, SharedNicsAreDivided) {
  const Cluster cluster = parse_cluster("4x8xmi250x");
  const Topology topology(cluster);
  const double nic = cluster.node.nic.achieved.value.value;
  const GroupShape one = topology.group({0, 4, 8});
  EXPECT_EQ(one.sharers, 2);
  EXPECT_NEAR(one.ring.value, nic / 2, 1);
  EXPECT_NEAR(topology.group({0, 4, 8}, Siblings::none).ring.value, nic, 1);
  EXPECT_NEAR(topology.group({0, 32, 1}).ring.value, 4 * nic, 1);
}

// MI250X: 4 links inside a module, 2 or 1 between modules; the dies of a module get 4 links, two dies without a link go through others.
TEST(Topology, UnevenLinks) {
  const Cluster cluster = parse_cluster("8xmi250x");
  const Topology topology(cluster);
  const double link = cluster.node.gpu_link.achieved.value.value;
  EXPECT_NEAR(topology.group_bandwidth({0, 1}).ring.value, 4 * link, 1);
  EXPECT_NEAR(topology.group_bandwidth({0, 6}).ring.value, 2 * link, 1);
  EXPECT_NEAR(topology.group_bandwidth({0, 2}).ring.value, 1 * link, 1);
  EXPECT_NEAR(topology.group({0, 8, 1}).ring.value, 6 * link, 1);  // the cut around one module: 0-6, 0-2, 1-5, 1-3 = 2+1+2+1
  EXPECT_GT(topology.route(0, 7).latency.value, topology.route(0, 1).latency.value);
}

// PCIe tree, two switches of four GPUs under two sockets: inside a switch the GPU's own link; eight GPUs share the link between sockets,
// which a ring crosses once per direction and an all-to-all with 4 · 4/7 of a GPU's traffic.
TEST(Topology, PcieTree) {
  const Cluster cluster = parse_cluster("8xl40s");
  const Topology topology(cluster);
  const double pcie = cluster.node.host_link.achieved.value.value, sockets = cluster.node.socket_link.achieved.value.value;
  const double uplink = cluster.node.uplink.achieved.value.value;
  EXPECT_NEAR(topology.group({0, 4, 1}).ring.value, pcie, 1);
  EXPECT_NEAR(topology.group({0, 8, 1}).ring.value, std::min(pcie, sockets), 1);
  EXPECT_NEAR(topology.group({0, 8, 1}).all_to_all.value, std::min(uplink, sockets) / (16.0 / 7), 1);
  // Pairs across the sockets: all four groups cross it at once.
  EXPECT_NEAR(topology.group({0, 2, 4}).ring.value, std::min(uplink, sockets) / 4, 1);
  EXPECT_NEAR(topology.group({0, 2, 4}, Siblings::none).ring.value, std::min({pcie, uplink, sockets}), 1);
}

// Leaves of 16 nodes under a spine with a quarter of the capacity. A ring over 64 neighbouring nodes crosses each leaf's uplinks once:
// not slowed. One member per 8 nodes (2 per leaf): 4 groups' worth of rings share a quarter: half. All-to-all: 48 of 63 go up.
TEST(Topology, OversubscribedSpine) {
  const Cluster cluster = parse_cluster("hgx-h100-oversubscribed");
  const Topology topology(cluster);
  const double nic = cluster.node.nic.achieved.value.value;
  EXPECT_NEAR(topology.group({0, 64, 8}).ring.value, nic, 1);
  EXPECT_NEAR(topology.group({0, 8, 64}).ring.value, nic * 2 / 4, 1);
  EXPECT_NEAR(topology.group({0, 64, 8}).all_to_all.value, nic / 4 * 63 / 48, 1);
  EXPECT_NEAR(topology.group({0, 16, 8}).ring.value, nic, 1);
  EXPECT_DOUBLE_EQ(topology.group({0, 16, 8}).inter_latency.value, cluster.node.nic.latency.value.value);
  EXPECT_DOUBLE_EQ(topology.group({0, 64, 8}).inter_latency.value, 1.5 * cluster.node.nic.latency.value.value);
}

// Nodes are alike, so 16,384 GPUs are answered from one node's graph: well under a frame of 50 ms even here.
TEST(Topology, SixteenThousandGpusAreFast) {
  const auto start = std::chrono::steady_clock::now();
  const Topology topology(parse_cluster("2048x8xh100-sxm"));
  const GroupShape world = topology.group({0, 16384, 1});
  EXPECT_EQ(world.nodes, 2048);
  EXPECT_EQ(topology.group({5, 128, 128}).size, 128);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 0.5);
}

// A group of equal steps is told by the few nodes on which its members lie differently, one of listed ranks by all of its nodes: the same
// to the bit, whatever the stride, the first rank and the node.
TEST(Topology, StridedGroupsAreThoseOfTheirListedRanks) {
  std::mt19937 random(43);
  const auto draw = [&](std::int64_t from, std::int64_t to) { return std::uniform_int_distribution<std::int64_t>(from, to)(random); };
  std::set<std::int64_t> nodes;
  for (const char* name : {"24x8xh100-sxm", "17x4xmi250x", "hgx-h100-oversubscribed"}) {
    const Cluster cluster = parse_cluster(name);
    const Topology topology(cluster);
    for (int i = 0; i < 400; ++i) {
      RankGroup group{draw(0, cluster.gpus() - 1), 1, draw(1, 3) == 1 ? draw(1, 7) : draw(1, 40)};
      group.size = draw(1, (cluster.gpus() - 1 - group.first) / group.stride + 1);
      std::vector<std::int64_t> ranks;
      for (std::int64_t rank = 0; rank < group.size; ++rank) ranks.push_back(group.first + rank * group.stride);
      const GroupShape a = topology.group(group, Siblings::none), b = topology.group_bandwidth(ranks);
      const auto all = [](const GroupShape& of) {
        return std::make_tuple(of.size, of.nodes, of.per_node, of.direct, of.uniform, of.ring.value, of.all_to_all.value, of.pair.value,
                               of.intra_ring.value, of.inter.value, of.intra_latency.value, of.inter_latency.value, of.sharers);
      };
      ASSERT_EQ(all(a), all(b)) << name << ": " << group.size << " ranks " << group.stride << " apart from " << group.first;
      nodes.insert(a.nodes);
    }
  }
  EXPECT_GT(nodes.size(), 20u);
}

TEST(Topology, RanksOutsideAreRefused) {
  const Topology topology(parse_cluster("8xmi300x"));
  EXPECT_THROW(topology.group({0, 9, 1}), Error);
  EXPECT_THROW(topology.group({0, 0, 1}), Error);
  EXPECT_THROW(topology.group({0, INT64_MAX, INT64_MAX}), Error);
  EXPECT_THROW(topology.group_bandwidth({}), Error);
  EXPECT_THROW(topology.group_bandwidth({0, -1}), Error);
  EXPECT_THROW(Topology(cluster_of("rtx4090", 8, 4)).group({0, 8, 1}), Error);  // two workstations without a network
}

// A workstation holds 4 GPUs on one CPU; 8 stand in a server, where rings cross to the other CPU over one link each way.
TEST(Topology, MoreThanAWorkstationStandInAServer) {
  for (const std::string device : {"rtx4090", "rtx3090", "a10", "rtxa6000", "rtx6000-ada", "w7900"}) {
    EXPECT_EQ(cluster_of(device, 4).node.sockets, 1) << device;
    const Cluster server = cluster_of(device, 8);
    EXPECT_EQ(server.nodes, 1) << device;
    EXPECT_EQ(server.node.sockets, 2) << device;
    EXPECT_EQ(cluster_of(device, 16).nodes, 2) << device;
    EXPECT_GT(Topology(cluster_of(device, 16)).group({0, 16, 1}).ring.value, 0) << device;
  }
}

TEST(Topology, GraphvizNamesEveryLink) {
  const std::string dot = Topology(parse_cluster("4xmi300a")).dot();
  EXPECT_NE(dot.find("gpu0 -> gpu3 [label=\"96.0 GB/s\"]"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll

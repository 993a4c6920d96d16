// What a run's work is priced by beside its kernels.
#include <gtest/gtest.h>

#include "plimsoll/hardware.hpp"
#include "plimsoll/play.hpp"

namespace plimsoll {
namespace {

double pace_on(const char* cluster) { return pricing_of(parse_cluster(cluster), {}, "transformers").pace; }

// The slowest of n rates that are even between 1 ± s is expected (n − 1)/(n + 1) · s behind the middle: nothing for one device, 7/9 of s
// for eight, 511/513 for 512.
TEST(Pricing, TheSlowestOfManyDevicesSetsThePace) {
  EXPECT_EQ(pace_on("1xh100-sxm"), 1);
  const double spread = (pace_on("8xh100-sxm") - 1) * 9 / 7;
  EXPECT_GT(spread, 0);
  EXPECT_LT(spread, 0.2);
  EXPECT_NEAR(pace_on("64x8xh100-sxm"), 1 + spread * 511 / 513, 1e-12);
}

// hardware/hosts.json: 1.25 % for A100s, so eight are 7/9 of it behind one.
TEST(Pricing, AFamilyMayHaveASpreadOfItsOwn) {
  EXPECT_NEAR(pace_on("8xa100-80gb-sxm"), 1 + 0.0125 * 7 / 9, 1e-12);
  EXPECT_LT(pace_on("8xa100-80gb-sxm"), pace_on("8xh100-sxm"));
}

TEST(Pricing, WhatCollectivesTakeIsTheClusters) {
  const Cluster cluster = parse_cluster("8xh100-sxm");
  const Pricing pricing = pricing_of(cluster, {}, "transformers");
  // 24 channels hold 24 of 132 compute units.
  EXPECT_NEAR(pricing.product_slowdown, 132.0 / 108, 1e-12);
  EXPECT_EQ(pricing.communication_slowdown, cluster.node.collectives.contention.communication.value);
}

// What nanotron's pace does not name is that of all frameworks.
TEST(Pricing, AHostsPaceMayDifferInOneWorkAlone) {
  const Cluster cluster = parse_cluster("8xh100-sxm");
  const HostPace all = pricing_of(cluster, {}, "transformers").host, other = pricing_of(cluster, {}, "nanotron").host;
  const auto collective = static_cast<std::size_t>(HostWork::collective);
  for (std::size_t i = 0; i < kHostWorks; ++i)
    if (i != collective) EXPECT_EQ(all.work[i].value, other.work[i].value) << name_of(static_cast<HostWork>(i));
  EXPECT_GT(other.work[collective].value, all.work[collective].value);
  EXPECT_EQ(all.launch.value, other.launch.value);
}

// hardware/hosts.json, "rank_bandwidth": each of several ranks moves 20 GB/s at most, less than an eighth of 300; a rank alone has the
// node's memory.
TEST(Pricing, AnOptimizerOnTheHostHasItsShareBesideOtherRanks) {
  const auto a_byte = [](const char* on) {
    return pricing_of(parse_cluster(on), {}, "transformers").host.work[static_cast<std::size_t>(HostWork::memory_traffic)].value;
  };
  EXPECT_NEAR(a_byte("8xh200"), 1 / 20e9, 1e-15);
  EXPECT_NEAR(a_byte("1xh200"), 1 / 300e9, 1e-15);
}

// ZeRO-Offload's Adam of Llama-3-8B on one GPU: 28 B per parameter through 100 GB/s of host memory.
TEST(Pricing, AnOptimizerOnTheHostOfOneRankHasTheNodesMemory) {
  Cluster cluster = parse_cluster("1xmi300x");
  cluster.node.host_memory_bandwidth.value = BytesPerSecond(100e9);
  const double a_byte = pricing_of(cluster, {}, "transformers").host.work[static_cast<std::size_t>(HostWork::memory_traffic)].value;
  EXPECT_NEAR(a_byte * 28 * 8030261248.0, 2.248, 5e-4);
}

// hardware/hosts.json, "processors": a Grace takes 2.5 times as long for all that a host does, but not for bytes that move.
TEST(Pricing, AGraceIssuesSlowerThanTheHostWhosePaceIsGiven) {
  const HostPace usual = pricing_of(parse_cluster("8xb200"), {}, "transformers").host;
  const HostPace grace = pricing_of(parse_cluster("8xgb200"), {}, "transformers").host;
  for (std::size_t i = 0; i < kHostWorks; ++i)
    if (static_cast<HostWork>(i) != HostWork::memory_traffic) EXPECT_NEAR(grace.work[i].value, 2.5 * usual.work[i].value, 1e-12);
  EXPECT_NEAR(grace.launch.value, 2.5 * usual.launch.value, 1e-12);
  EXPECT_NEAR(grace.wakes.value, 2.5 * usual.wakes.value, 1e-12);
}

}  // namespace
}  // namespace plimsoll

// Which communicators a rank opens.
#include "estimate/process_groups.hpp"

#include <gtest/gtest.h>

#include <string>

#include "estimate/rank_groups.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll {
namespace {

std::size_t groups_of(const std::string& framework, const std::string& where, int dp, int tp, int pp) {
  Strategy strategy;
  set_option(strategy, "framework", framework);
  strategy.dp = dp;
  strategy.tp = tp;
  strategy.pp = pp;
  strategy.grad_accum = 8;
  strategy.seq_len = 4096;
  strategy.sequence_parallel = tp > 1;
  const Cluster cluster = parse_cluster(where);
  return estimation::communicating_groups(cluster, resolve(strategy, load_model("llama-3.1-8b"), cluster)).size();
}

// Each set of ranks once: on two nodes of eight with tp 8 the world, a node's ranks, which are the tensor-parallel ones, and the
// data-parallel ones; with two stages, the ranks of the pipeline, of a replica and the pair of neighbours besides.
TEST(ProcessGroups, NanotronOpensEachSetOfRanksOnce) {
  EXPECT_EQ(groups_of("nanotron", "2x8xh100-sxm", 2, 8, 1), 3u);
  EXPECT_EQ(groups_of("nanotron", "16x8xh100-sxm", 8, 16, 1), 4u);
  EXPECT_EQ(groups_of("nanotron", "16x8xh100-sxm", 8, 8, 2), 6u);
  EXPECT_EQ(groups_of("nanotron", "2x8xh100-sxm", 1, 8, 2), 4u);  // a replica is the world
  EXPECT_EQ(groups_of("nanotron", "8x8xh100-sxm", 4, 4, 4), 7u);
}

TEST(ProcessGroups, OthersOpenTheGroupsOfTheirDegrees) {
  EXPECT_EQ(groups_of("torchtitan", "2x8xh100-sxm", 2, 8, 1), 2u);
  EXPECT_EQ(groups_of("torchtitan", "h100-sxm", 1, 1, 1), 0u);
}

// Under DDP all data-parallel ranks are replicas; the group of the shards, which others than DDP use, is the same.
TEST(ProcessGroups, AllRanksOfDdpAreReplicas) {
  Strategy strategy;
  strategy.dp = strategy.dp_shard = 8;
  strategy.data_parallel = DataParallel::ddp;
  const auto size = [&](Group group) { return estimation::rank_groups(strategy)[static_cast<std::size_t>(group)].size; };
  EXPECT_EQ(size(Group::data_replicate), 8);
  strategy.data_parallel = DataParallel::fsdp2;
  EXPECT_EQ(size(Group::data_replicate), 1);
  EXPECT_EQ(size(Group::data_shard), 8);
}

}  // namespace
}  // namespace plimsoll

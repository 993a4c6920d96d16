// How far nanotron's host is ahead of its device, against what published runs hold (Hugging Face's sweep on H100, December 2024): reserved
// bytes of those runs are either those of a full launch queue or those of none.
#include "estimate/host_pace.hpp"

#include <gtest/gtest.h>

#include <string>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "program/lower.hpp"

namespace plimsoll {
namespace {

/// h 4096, 32 layers, MLP 14336 with as many key and value heads as heads, vocabulary 131072: the sweep's 8B.
Model sweep_8b() {
  Model model = load_model("llama-3.1-8b");
  model.kv_heads = model.heads;
  model.vocab_size = 131072;
  return model;
}

struct Run {
  int dp, tp, pp, micro_batch, micro_batches;
  const char* version = "";
};

PlayMemoryOptions options_of(const Model& model, const Run& run) {
  Strategy strategy;
  set_option(strategy, "framework", "nanotron");
  strategy.framework_version = run.version;
  strategy.dp = run.dp;
  strategy.tp = run.tp;
  strategy.pp = run.pp;
  strategy.micro_batch = run.micro_batch;
  strategy.grad_accum = run.micro_batches;
  strategy.seq_len = 4096;
  strategy.sequence_parallel = run.tp > 1;
  strategy.data_parallel = DataParallel::zero1;
  const Cluster cluster = parse_cluster(std::to_string(run.dp * run.tp * run.pp / 8) + "x8xh100-sxm");
  const Strategy resolved = resolve(strategy, model, cluster);
  PlayMemoryOptions options;
  estimation::set_launches_behind(options, program::lower_nanotron(program::on_h100(model, resolved)), cluster, resolved);
  return options;
}

/// Whether the host is a whole queue ahead all the time.
bool always_behind(const Run& run) {
  const PlayMemoryOptions options = options_of(sweep_8b(), run);
  EXPECT_EQ(options.launches_behind, program::nanotron_launch_queue());
  return !options.behind_in_stalls_only;
}

// Published, GiB: 21.01 and 46.46 at micro-batches of 4 and 8 on tp 8; 27.87 and 48.35 at 2 and 4 on tp 4. Played without and with the
// queue: 20.98 or 28.0, 35.0 or 48.2; 27.9 or 33.6, 42.2 or 51.5.
TEST(HostPace, APipelinesDeviceFallsBehindWithLargeMicroBatches) {
  EXPECT_FALSE(always_behind({4, 8, 2, 4, 16}));
  EXPECT_TRUE(always_behind({4, 8, 2, 8, 8}));
  EXPECT_FALSE(always_behind({4, 4, 2, 2, 32}));
  EXPECT_TRUE(always_behind({4, 4, 2, 4, 16}));
}

// Published 30.91 GiB of tp 8 at a micro-batch of 4: the queue gives 30.79, none 23.46. At a micro-batch of 1, 24.39 of a step of 256 (the
// queue: 24.3) and 14.20 of one of 8 (none: 13.98, the queue: 15.6).
TEST(HostPace, WithoutAPipelineManyMicroBatchesMeetALatePeer) {
  EXPECT_TRUE(always_behind({16, 8, 1, 4, 4}));
  EXPECT_TRUE(always_behind({1, 8, 1, 1, 256}));
  EXPECT_FALSE(always_behind({32, 8, 1, 1, 8}));
}

// Runs of the 27th of December across nodes: published 36.46 GiB of two replicas on tp 16 at a micro-batch of 16, 49.54 of 64 replicas on
// tp 4 at 64 micro-batches of 1 and 23.36 of 64 replicas on tp 8 at a micro-batch of 4; without the queue 36.46, 49.54 and 23.36, with it
// 64.3, 51.6 and 29.7. On one node hosts are as quick as before: 24.39 of tp 8 (with the queue 24.3, without 22.5), and so they were across
// nodes: 63.25 of tp 16 (61.6, without 33.9).
TEST(HostPace, HostsThatMeetAtEachCollectiveAreSlowerThanTheirDevices) {
  const char* version = "2024-12-27";
  EXPECT_FALSE(always_behind({2, 16, 1, 16, 8, version}));
  EXPECT_FALSE(always_behind({64, 4, 1, 1, 64, version}));
  EXPECT_FALSE(always_behind({64, 8, 1, 4, 1, version}));
  EXPECT_TRUE(always_behind({1, 8, 1, 1, 256, version}));
  EXPECT_TRUE(always_behind({2, 16, 1, 16, 8, "2024-12-18"}));
}

// Two micro-batches of 32 sequences of the sweep's 1B on tp 8, a stage of ten layers: published 42.58 GiB, 35.6 without the queue and 58.6
// with all of it.
TEST(HostPace, AShortStepFillsNoQueue) {
  Model model = sweep_8b();
  model.hidden_size = 2048;
  model.layers = 16;
  model.head_dim = 64;
  model.intermediate_size = 8192;
  const PlayMemoryOptions options = options_of(model, {4, 8, 2, 32, 2});
  EXPECT_FALSE(options.behind_in_stalls_only);
  EXPECT_GT(options.launches_behind, 100);
  EXPECT_LT(options.launches_behind, program::nanotron_launch_queue() / 2);
}

TEST(HostPace, BeforeTheFixNoPipelinesDeviceFallsBehind) { EXPECT_FALSE(always_behind({4, 8, 2, 8, 8, "2024-12-18"})); }

}  // namespace
}  // namespace plimsoll

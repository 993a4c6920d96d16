#include <gtest/gtest.h>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/play.hpp"
#include "plimsoll/product_cost.hpp"
#include "play/other_devices.hpp"
#include "program/lower.hpp"

namespace plimsoll {
namespace {

/// A program under construction: kernels of `bytes` streamed, collectives on stream 1.
struct Builder {
  StepProgram program;
  /// The communication of a step begins behind the step before it.
  Builder() {
    program.streams = {"compute", "communication"};
    wait(1, 0);
  }
  void kernel(std::int64_t bytes) {
    program.kernels.push_back({Unspecified{KernelKind::elementwise, DType::bf16, 0, bytes, 0}});
    program.step.push_back({InstructionKind::kernel, 0, Category::temporary, static_cast<std::uint32_t>(program.kernels.size() - 1), 0, 0});
  }
  void collective(std::int64_t bytes, StreamId stream = 1) {
    program.collectives.push_back({CollectiveKind::all_gather, Group::data_shard, bytes, DType::bf16});
    program.step.push_back(
        {InstructionKind::collective, stream, Category::temporary, static_cast<std::uint32_t>(program.collectives.size() - 1), 0, 0});
  }
  void wait(StreamId stream, StreamId target) {
    program.step.push_back({InstructionKind::record_event, target, Category::temporary, target, 0, 0});
    program.step.push_back({InstructionKind::wait_event, stream, Category::temporary, target, 0, 0});
  }
};

Pricing pricing() {
  Pricing pricing{parse_cluster("8xmi300x"), {}, 1, 1, 1, {}, {}};
  const GroupShape group = Topology(pricing.cluster).group({0, 8, 1});
  pricing.groups.fill(group);
  return pricing;
}

constexpr std::int64_t kWork = std::int64_t{1} << 30;

// Gather, wait, compute: nothing overlaps, so the step is the sum and the whole gather is exposed.
TEST(PlayTime, DependentWorkAddsUp) {
  Builder builder;
  builder.collective(kWork);
  builder.wait(0, 1);
  builder.kernel(kWork);
  const Timeline timeline = play_time(builder.program, pricing());
  EXPECT_NEAR(timeline.step.value, (timeline.compute + timeline.communication).value, 1e-12);
  EXPECT_NEAR(timeline.exposed_communication().value, timeline.communication.value, 1e-12);
  EXPECT_EQ(timeline.events.size(), 2u);
}

// Two equal kernels at once: on one device they take turns, on two neither waits for the other.
TEST(PlayTime, AnotherDevicesKernelsTakeNothingOfThisOnes) {
  Builder builder;
  builder.kernel(kWork);
  builder.kernel(kWork);
  builder.program.step.back().stream = 1;
  const double alone = price(builder.program.kernels.front(), pricing().cluster.accelerator).value;
  EXPECT_GT(play_time(builder.program, pricing()).step.value, 1.9 * alone);
  EXPECT_LT(play_time(builder.program, pricing(), std::vector<bool>{false, true}).step.value, 1.1 * alone);
}

// A host that meets others at each collective issues four of them 4 ms after each other's start; the device works meanwhile.
TEST(PlayTime, HostsThatMeetDelayWhatTheyIssue) {
  Builder builder;
  for (int i = 0; i < 4; ++i) {
    builder.collective(1024);
    builder.wait(0, 1);
  }
  builder.kernel(1024);
  builder.program.step.push_back({InstructionKind::synchronize, 0, Category::temporary, 0, 0, 0});
  Pricing meeting = pricing();
  meeting.meeting[static_cast<std::size_t>(Group::data_shard)] = Seconds(4e-3);
  const Timeline timeline = play_time(builder.program, meeting);
  const double last = price(builder.program.collectives.back(), meeting.groups.front(), meeting.cluster).value;
  EXPECT_NEAR(timeline.step.value, 4 * 4e-3 + last + timeline.compute.value, 1e-9);
}

// CUDA_LAUNCH_BLOCKING=1: a gather and a kernel that need nothing of each other run one after the other, and the host issues what follows when
// it has waked from each.
TEST(PlayTime, AHostThatWaitsForEachLaunchRunsNothingBesideAnything) {
  Builder builder;
  builder.collective(kWork);
  builder.kernel(kWork);
  builder.wait(0, 1);
  Pricing one = pricing();
  one.host.wakes = Seconds(1e-5);
  const Timeline beside = play_time(builder.program, one);
  EXPECT_LT(beside.step.value, 0.95 * (beside.compute + beside.communication).value);
  one.blocking = true;
  const Timeline blocking = play_time(builder.program, one);
  // The communication stream's first event is of nothing yet. Between the two lies one waking; the last ends the step.
  EXPECT_NEAR(blocking.step.value, (blocking.compute + blocking.communication).value + 1e-5, 1.5e-5);
  EXPECT_NEAR(blocking.exposed_communication().value, blocking.communication.value, 1e-12);
}

// Of what a CUDA graph replays the host does nothing: four kernels of 1 ms of Python each take 4 ms, two of them captured 2 ms.
TEST(PlayTime, TheHostIssuesNothingOfWhatAGraphReplays) {
  Builder builder;
  builder.program.labels = {"", "layers.0.self_attention: linear", "layers.0.mlp: linear"};
  constexpr std::int64_t kPieces = 1000;
  for (int i = 0; i < 4; ++i) {
    builder.program.step.push_back(
        {InstructionKind::host, 0, Category::temporary, static_cast<std::uint32_t>(HostWork::operation), kPieces, 1u + i % 2});
    builder.kernel(1024);
    builder.program.step.back().label = 1u + i % 2;
  }
  builder.program.step.push_back({InstructionKind::synchronize, 0, Category::temporary, 0, 0, 0});
  Pricing hosted = pricing();
  hosted.host.work[static_cast<std::size_t>(HostWork::operation)] = Seconds(1e-6);
  hosted.host.launch = Seconds(1e-5);
  const double kernel = play_time(builder.program, pricing()).compute.value / 4;
  EXPECT_NEAR(play_time(builder.program, hosted).step.value, 4 * (1e-3 + 1e-5) + kernel, 1e-9);
  hosted.replayed = {".self_attention"};
  EXPECT_NEAR(play_time(builder.program, hosted).step.value, 2 * (1e-3 + 1e-5) + kernel, 1e-9);
}

// Without the wait both run at once: the step is the longer, and only what exceeds the kernel is exposed.
TEST(PlayTime, IndependentWorkOverlaps) {
  Builder builder;
  builder.collective(kWork);
  builder.kernel(kWork);
  const Timeline timeline = play_time(builder.program, pricing());
  EXPECT_NEAR(timeline.step.value, std::max(timeline.compute.value, timeline.communication.value), 1e-12);
  EXPECT_NEAR(timeline.exposed_communication().value, std::max(0.0, (timeline.communication - timeline.compute).value), 1e-12);
}

// A wait holds only for what was issued before it: the second gather is not waited for.
TEST(PlayTime, AWaitCoversWhatWasIssuedBeforeIt) {
  Builder builder;
  builder.collective(kWork);
  builder.wait(0, 1);
  builder.kernel(kWork);
  builder.collective(64 * kWork);
  const Timeline timeline = play_time(builder.program, pricing());
  ASSERT_EQ(timeline.events.size(), 3u);
  EXPECT_EQ(timeline.events[1].stream, kComputeStream);
  EXPECT_LT(timeline.events[1].end, timeline.events[2].end);
}

// Contention: a kernel slowed 1.25 times under a collective that outlasts it takes 1.25 of its time.
TEST(PlayTime, ContentionStretchesBoth) {
  Builder builder;
  builder.collective(64 * kWork);
  builder.kernel(kWork);
  Pricing prices = pricing();
  const double alone = play_time(builder.program, prices).compute.value;
  prices.memory_slowdown = 1.25;
  EXPECT_NEAR(play_time(builder.program, prices).compute.value, 1.25 * alone, 1e-9);
}

// A product of H100 that takes all 132 units beside communication that outlasts it. NCCL's collective holds 24: the last blocks take a second
// wave. Where products leave units free for it (user buffers) they go on on 108. A transfer in a group of several nodes has two channels.
TEST(PlayTime, WhatCommunicationHoldsDependsOnItsKind) {
  const auto slowdown = [](CollectiveKind kind, bool expected, std::int64_t nodes) {
    Pricing prices = pricing_of(parse_cluster("8xh100-sxm"), {}, "transformers");
    prices.groups.fill(Topology(prices.cluster).group({0, 8, 1}));
    for (GroupShape& group : prices.groups) group.nodes = nodes;
    prices.host = {};
    prices.gap = Seconds();
    Builder builder;
    StepProgram& program = builder.program;
    program.kernels.push_back({linear_product(MathType::bf16, 8192, 8192, 8192)});
    program.collectives.push_back({kind, Group::tensor, kWork, DType::bf16, Collective::kNoPeer, expected});
    program.step.push_back({InstructionKind::collective, 1, Category::temporary, 0, 0, 0});
    program.step.push_back({InstructionKind::kernel, 0, Category::temporary, 0, 0, 0});
    builder.wait(0, 1);
    const double beside = play_time(program, prices).compute.value;
    prices.product_slowdown = 1;
    prices.second_wave = 0;
    return beside / play_time(program, prices).compute.value;
  };
  EXPECT_NEAR(slowdown(CollectiveKind::all_gather, false, 1), 1.7, 1e-9);
  EXPECT_NEAR(slowdown(CollectiveKind::all_gather, true, 1), 132.0 / 108, 1e-9);
  EXPECT_NEAR(slowdown(CollectiveKind::send, false, 1), 132.0 / 108, 1e-9);
  EXPECT_NEAR(slowdown(CollectiveKind::send, false, 2), 1, 1e-9);
}

// FSDPParamGroup.wait_for_unshard: in forward a unit's copy-out lets the streams of all-gathers go on behind the copy-out before it, in
// backward behind itself. So unit k's all-gather begins behind the copy-out of unit k − 2, or k − 1; however early the host issues it.
TEST(PlayTime, SecondFsdpGathersAtMostTwoUnitsAhead) {
  Strategy said;
  set_options(said, {{"framework", "transformers"}, {"data_parallel", "fsdp2"}, {"micro_batch", "1"}, {"seq_len", "4096"}});
  const Model model = load_model("llama-3.1-8b");
  const Cluster cluster = parse_cluster("8xh100-sxm");
  const StepProgram program = program::lower_hf_fsdp2(program::on_h100(model, resolve(said, model, cluster)));
  Pricing prices = pricing_of(cluster, {}, "transformers");
  prices.groups.fill(Topology(cluster).group({0, 8, 1}));
  prices.host = {};  // never late
  std::vector<double> gathers, copy_outs;
  const Timeline timeline = play_time(program, prices);
  for (const Event& event : timeline.events) {
    const Instruction& each = program.step[event.instruction];
    if (each.kind == InstructionKind::collective && program.collectives[each.id].kind == CollectiveKind::all_gather)
      gathers.push_back(event.start.value);
    if (each.kind == InstructionKind::kernel && program.labels[each.label].find("split_with_sizes_copy") != std::string::npos)
      copy_outs.push_back(event.start.value);
  }
  ASSERT_EQ(gathers.size(), copy_outs.size());
  ASSERT_GT(gathers.size(), 64u);  // 32 layers, twice, and the root
  for (std::size_t k = 2; k < gathers.size(); ++k) EXPECT_GE(gathers[k], copy_outs[k - 2]) << k;
}

// The host's optimizer works between backward and the gather that the next kernel waits for: the wait is the optimizer's until the gather
// is launched, and the gather's from there.
TEST(PlayTime, AWaitIsBlamedOnWhatDelayedTheCollective) {
  Builder builder;
  builder.kernel(kWork);
  builder.program.step.push_back({InstructionKind::synchronize, 0, Category::temporary, 0, 0, 0});
  builder.program.step.push_back(
      {InstructionKind::host, 0, Category::temporary, static_cast<std::uint32_t>(HostWork::memory_traffic), 1, 0});
  builder.collective(kWork);
  builder.wait(0, 1);
  builder.kernel(kWork);
  Pricing prices = pricing();
  prices.host.work[static_cast<std::size_t>(HostWork::memory_traffic)] = Seconds(0.25);
  prices.host.launch = Seconds(1e-6);
  const Timeline timeline = play_time(builder.program, prices);
  const double gather = price(builder.program.collectives[0], prices.groups[0], prices.cluster).value;
  EXPECT_NEAR(timeline.host_optimizer.value, 0.25, 1e-9);
  EXPECT_NEAR(timeline.exposed_communication().value, gather, 1e-9);
  EXPECT_NEAR(timeline.sum().value, timeline.step.value, 1e-12);
}

// A slow host: ten kernels of a few microseconds, 100 µs of host time each; the device idles between them.
TEST(PlayTime, TheHostCanBeTheBottleneck) {
  Builder builder;
  for (int i = 0; i < 10; ++i) builder.kernel(1024);
  Pricing prices = pricing();
  prices.host.launch = Seconds(100e-6);
  const Timeline timeline = play_time(builder.program, prices);
  EXPECT_NEAR(timeline.step.value, 1e-3, 1e-5);
  EXPECT_GT(timeline.host.value, 0.8e-3);
}

// Every moment of the step is one of four: computing, waiting for a collective, waiting for a copy, idle.
TEST(PlayTime, EveryMomentIsAccountedFor) {
  Builder builder;
  for (int i = 0; i < 5; ++i) {
    builder.collective(kWork + i);
    builder.kernel(kWork * (i + 1));
    if (i % 2 == 0) builder.wait(0, 1);
  }
  const Timeline timeline = play_time(builder.program, pricing());
  EXPECT_NEAR(timeline.sum().value, timeline.step.value, 1e-12);
}

TEST(PlayTime, StreamsMustBeNamed) {
  Builder builder;
  builder.collective(kWork, 7);
  EXPECT_THROW(play_time(builder.program, pricing()), Error);
}

}  // namespace
}  // namespace plimsoll

#include <gtest/gtest.h>

#include "plimsoll/error.hpp"
#include "plimsoll/play.hpp"

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

// Two units of FSDP's forward: gather 0 | gather 1 beside compute 0 | compute 1. The player must agree with the recurrence.
TEST(PlayTime, AgreesWithTheFsdpRecurrence) {
  Builder builder;
  builder.collective(kWork);
  builder.wait(0, 1);
  builder.collective(kWork);
  builder.kernel(8 * kWork);
  builder.wait(0, 1);
  builder.kernel(8 * kWork);
  const Pricing prices = pricing();
  const Seconds gather = price(builder.program.collectives[0], prices.groups[0], prices.cluster);
  const Seconds compute = price(builder.program.kernels[0], prices.cluster.accelerator);
  const std::vector<FsdpUnit> units(2, {compute, gather, Seconds()});
  EXPECT_NEAR(play_time(builder.program, prices).step.value, fsdp_forward(units).value, 1e-12);
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

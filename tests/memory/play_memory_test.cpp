#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "plimsoll/error.hpp"
#include "plimsoll/memory.hpp"

namespace plimsoll {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

/// Writes programs by hand.
struct Script {
  std::vector<Instruction>& part;
  Script& phase(Phase phase) {
    part.push_back({InstructionKind::phase, kComputeStream, {}, static_cast<std::uint32_t>(phase), 0, 0});
    return *this;
  }
  Script& alloc(std::uint32_t id, std::int64_t bytes, Category category, std::uint32_t label = 0, StreamId stream = kComputeStream) {
    part.push_back({InstructionKind::alloc, stream, category, id, bytes, label});
    return *this;
  }
  Script& free(std::uint32_t id) {
    part.push_back({InstructionKind::free, kComputeStream, {}, id, 0, 0});
    return *this;
  }
};

/// A parameter of 40 MiB, an activation of 30, a gradient of 40 with a temporary of 20 beside it; states of 80 MiB made in step 1.
StepProgram small_program() {
  StepProgram program;
  program.labels = {"", "weight", "mlp", "mlp.grad", "adam"};
  Script{program.init}.alloc(0, 40 * kMiB, Category::parameter, 1);
  const auto step = [](std::vector<Instruction>& part) {
    Script(Script{part}
               .phase(Phase::forward)
               .alloc(1, 30 * kMiB, Category::activation, 2)
               .phase(Phase::backward)
               .alloc(2, 40 * kMiB, Category::gradient, 3)
               .alloc(3, 20 * kMiB, Category::temporary, 3)
               .free(3)
               .free(1)
               .phase(Phase::optimizer));
  };
  step(program.first_step);
  Script{program.first_step}.alloc(4, 80 * kMiB, Category::optimizer_state, 4).free(2);
  step(program.step);
  Script{program.step}.free(2);
  return program;
}

// 90 MiB are given back for 30 of another stream, so that the optimizer finds 30 in segments.
TEST(PlayMemory, TellsWhatIsReservedInTheOptimizer) {
  StepProgram program;
  program.labels = {""};
  Script{program.step}
      .phase(Phase::forward)
      .alloc(0, 90 * kMiB, Category::activation)
      .free(0)
      .alloc(1, 30 * kMiB, Category::gradient, 0, 1)
      .phase(Phase::optimizer)
      .free(1);
  PlayMemoryOptions options;
  EXPECT_EQ(play_memory(program, options).optimizer_reserved, 120_MiB);
  options.capacity = 100_MiB;
  options.steps = 1;
  const MemoryTrace trace = play_memory(program, options);
  EXPECT_EQ(trace.peak_reserved, 90_MiB);
  EXPECT_EQ(trace.optimizer_reserved, 30_MiB);
}

// Step 1: 40 + 30 + 40 + 20 = 130 in backward, then 40 + 40 + 80 = 160 in the optimizer. Later: 40 + 80 + 30 + 40 + 20 = 210 in backward.
TEST(PlayMemory, TellsFirstAndSteadyPeaksWithPhaseAndCategories) {
  const MemoryTrace trace = play_memory(small_program(), {});
  EXPECT_EQ(trace.init_peak_allocated, 40_MiB);
  EXPECT_EQ(trace.first_step_allocated, 160_MiB);
  EXPECT_EQ(trace.peak_allocated, 210_MiB);
  EXPECT_EQ(trace.forward_peak, 150_MiB);
  EXPECT_EQ(trace.backward_peak, 210_MiB);
  EXPECT_EQ(trace.persistent, 120_MiB);
  EXPECT_EQ(trace.peak_phase, Phase::backward);
  EXPECT_EQ(trace.peak_label, "mlp.grad");
  EXPECT_EQ(trace.at_peak[Category::parameter], 40_MiB);
  EXPECT_EQ(trace.at_peak[Category::optimizer_state], 80_MiB);
  EXPECT_EQ(trace.at_peak[Category::activation], 30_MiB);
  EXPECT_EQ(trace.at_peak[Category::temporary], 20_MiB);
  EXPECT_FALSE(trace.out_of_memory);
}

// Blocks are multiples of 512 B: three tensors of 100 B take 1,536 B, of which 300 B were asked for.
TEST(PlayMemory, TellsRequestedBytesAndTheStepOfThePeak) {
  StepProgram program;
  Script{program.init}.alloc(0, 100, Category::parameter);
  Script{program.first_step}.alloc(1, 100, Category::optimizer_state);
  Script{program.step}.phase(Phase::backward).alloc(2, 100, Category::activation).free(2);
  const MemoryTrace trace = play_memory(program, {});
  EXPECT_EQ(trace.peak_allocated, Bytes(3 * 512));
  EXPECT_EQ(trace.requested_at_peak, Bytes(300));
  EXPECT_EQ(trace.peak_step, 1);
}

TEST(PlayMemory, TimelineReachesThePeaksOfTheTrace) {
  const MemoryTrace trace = play_memory(small_program(), {});
  Bytes allocated, reserved;
  std::pair<int, std::size_t> last{-1, 0};
  const auto samples = memory_timeline(small_program(), {});
  ASSERT_FALSE(samples.empty());
  for (const MemorySample& sample : samples) {
    allocated = std::max(allocated, sample.allocated);
    reserved = std::max(reserved, sample.reserved);
    const std::pair now{sample.step, sample.instruction};
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_EQ(allocated, trace.peak_allocated);
  EXPECT_EQ(reserved, trace.peak_reserved);
  EXPECT_EQ(samples.back().allocated, trace.persistent);
  EXPECT_EQ(samples.back().step, 3);
}

TEST(PlayMemory, ListsWhatIsAliveAtThePeak) {
  const auto alive = alive_at_peak(small_program(), {});
  ASSERT_EQ(alive.size(), 5u);
  EXPECT_EQ(alive[0].label, "adam");
  EXPECT_EQ(alive[0].bytes, 80_MiB);
  EXPECT_EQ(alive[4].bytes, 20_MiB);
}

// The states of step 1 (80 MiB) fit beside 160 MiB of other segments only up to 239 MiB.
TEST(PlayMemory, NamesTheAllocationThatFailed) {
  PlayMemoryOptions options;
  options.capacity = 150_MiB;
  const MemoryTrace trace = play_memory(small_program(), options);
  ASSERT_TRUE(trace.out_of_memory);
  EXPECT_EQ(trace.out_of_memory->label, "adam");
  EXPECT_EQ(trace.out_of_memory->requested, 80_MiB);
  EXPECT_EQ(trace.out_of_memory->phase, Phase::optimizer);
  EXPECT_EQ(trace.out_of_memory->step, 0);
  EXPECT_EQ(trace.out_of_memory->allocated, 80_MiB);
}

// Once a step ends as the step before it ended, all later steps repeat it: skipping them changes nothing, whatever the capacity.
TEST(PlayMemory, SkippedStepsAreTheOnesPlayed) {
  for (const std::int64_t capacity : {std::int64_t{100000}, std::int64_t{260}, std::int64_t{240}, std::int64_t{215}}) {
    PlayMemoryOptions options;
    options.capacity = Bytes(capacity * kMiB);
    options.steps = 9;
    const MemoryTrace skipped = play_memory(small_program(), options);
    options.skip_recurring_steps = false;
    const MemoryTrace played = play_memory(small_program(), options);
    EXPECT_EQ(skipped.peak_allocated, played.peak_allocated);
    EXPECT_EQ(skipped.peak_reserved, played.peak_reserved);
    EXPECT_EQ(skipped.persistent, played.persistent);
    EXPECT_EQ(skipped.backward_peak, played.backward_peak);
    EXPECT_EQ(skipped.alloc_retries, played.alloc_retries);
    EXPECT_EQ(skipped.out_of_memory.has_value(), played.out_of_memory.has_value());
  }
}

// Summed up again, the events give the peak of the steps; what is left over is what the segments hold at the end.
TEST(PlayMemory, HistoryAddsUp) {
  const AllocatorHistory history = record_memory(small_program(), {});
  std::int64_t live = 0, peak = 0, segments = 0, held = 0, in_use = 0;
  for (const AllocatorEvent& event : history.events) {
    const std::int64_t bytes = event.bytes.count;
    if (event.kind == AllocatorEvent::Kind::alloc) live += bytes;
    if (event.kind == AllocatorEvent::Kind::free) live -= bytes;
    if (event.kind == AllocatorEvent::Kind::segment_alloc) segments += bytes;
    peak = std::max(peak, live);
  }
  for (const AllocatorSegment& segment : history.segments) {
    held += segment.bytes.count;
    for (const auto& block : segment.blocks) in_use += block.requested.count;
  }
  EXPECT_EQ(peak, 210 * kMiB);
  EXPECT_EQ(segments, held);
  EXPECT_EQ(live, in_use);
  EXPECT_EQ(Bytes(held), play_memory(small_program(), {}).peak_reserved);
}

// Tensor 0 is freed while stream 1 still uses it. Where its event is over by the next allocation, tensor 1 takes its block and tensor 2 a
// second segment: 80 MiB. Where it comes back with the wait, tensor 1 takes the second segment and tensor 2 the block that came back: 80
// again; 120 when the wait comes behind tensor 2.
TEST(PlayMemory, DelaysFreesOfRecordedStreams) {
  StepProgram program;
  Script script{program.step};
  script.alloc(0, 40 * kMiB, Category::communication_buffer);
  program.step.push_back({InstructionKind::record_stream, 1, {}, 0, 0, 0});
  script.free(0).alloc(1, 40 * kMiB, Category::activation);
  program.step.push_back({InstructionKind::record_event, 1, {}, 1, 0, 0});
  program.step.push_back({InstructionKind::wait_event, kComputeStream, {}, 1, 0, 0});
  script.alloc(2, 40 * kMiB, Category::activation).free(1).free(2);
  PlayMemoryOptions options;
  EXPECT_EQ(play_memory(program, options).peak_reserved, 80_MiB);
  options.delayed_free = DelayedFree::next_wait;
  EXPECT_EQ(play_memory(program, options).peak_reserved, 80_MiB);
  std::swap(program.step[4], program.step[5]);  // the wait comes too late for the third
  EXPECT_EQ(play_memory(program, options).peak_reserved, 120_MiB);
  options.delayed_free = DelayedFree::next_allocation;
  EXPECT_EQ(play_memory(program, options).peak_reserved, 80_MiB);
}

TEST(PlayMemory, RefusesProgramsThatMisuseTensors) {
  StepProgram program;
  Script{program.init}.free(3);
  EXPECT_THROW(play_memory(program, {}), Error);
  program.init.clear();
  Script{program.init}.alloc(3, 5, Category::input).alloc(3, 5, Category::input);
  EXPECT_THROW(play_memory(program, {}), Error);
}

}  // namespace
}  // namespace plimsoll

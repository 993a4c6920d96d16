// A block freed under record_stream while the host is ahead: reusable only when the device has come to the launches issued before the free.
#include <gtest/gtest.h>

#include "plimsoll/memory.hpp"

namespace plimsoll {
namespace {

constexpr std::int64_t kBlock = 64LL << 20;  // a segment of its own
constexpr StreamId kOther = 1;

/// alloc A, record_stream(A), free A, `launches` kernels, alloc B of the same size.
StepProgram program_with(int launches) {
  StepProgram program;
  program.streams.push_back("other");
  program.kernels.push_back({});
  const auto add = [&](InstructionKind kind, std::uint32_t id, std::int64_t bytes = 0, StreamId stream = kComputeStream) {
    program.step.push_back({kind, stream, Category::temporary, id, bytes, 0});
  };
  add(InstructionKind::alloc, 0, kBlock);
  add(InstructionKind::record_stream, 0, 0, kOther);
  add(InstructionKind::free, 0);
  for (int i = 0; i < launches; ++i) add(InstructionKind::kernel, 0);
  add(InstructionKind::alloc, 1, kBlock);
  add(InstructionKind::free, 1);
  return program;
}

std::int64_t reserved(int launches, std::int64_t behind, Bytes capacity = Bytes(INT64_MAX)) {
  PlayMemoryOptions options;
  options.launches_behind = behind;
  options.capacity = capacity;
  const MemoryTrace trace = play_memory(program_with(launches), options);
  EXPECT_FALSE(trace.out_of_memory);
  return trace.peak_reserved.count;
}

// Without a lag the second allocation finds the first block; four launches behind it does not before the fourth launch; and where memory
// is short the host waits for the device before it gives up.
TEST(LaunchesBehind, AFreedBlockComesBackWithTheDevice) {
  EXPECT_EQ(reserved(0, 0), kBlock);
  EXPECT_EQ(reserved(3, 4), 2 * kBlock);
  EXPECT_EQ(reserved(4, 4), kBlock);
  EXPECT_EQ(reserved(3, 4, Bytes(kBlock)), kBlock);
}

// The end of a step is the end of its events: the next step finds both blocks.
TEST(LaunchesBehind, AStepEndsWithTheDevice) {
  PlayMemoryOptions options;
  options.launches_behind = 1000;
  options.skip_recurring_steps = false;
  EXPECT_EQ(play_memory(program_with(3), options).peak_reserved.count, 2 * kBlock);
}

/// alloc A, record_stream(A), free A, alloc B of the same size, with instructions before the free and before B.
std::int64_t reserved_with(const std::vector<InstructionKind>& before_free, const std::vector<InstructionKind>& before_second) {
  StepProgram program;
  program.streams.push_back("other");
  program.kernels.push_back({});
  program.collectives.push_back({CollectiveKind::all_reduce, Group::world});
  const auto add = [&](InstructionKind kind, std::uint32_t id = 0, std::int64_t bytes = 0, StreamId stream = kComputeStream) {
    program.step.push_back({kind, stream, Category::temporary, id, bytes, 0});
  };
  add(InstructionKind::alloc, 0, kBlock);
  add(InstructionKind::record_stream, 0, 0, kOther);
  for (const InstructionKind kind : before_free) add(kind);
  add(InstructionKind::free, 0);
  for (const InstructionKind kind : before_second) add(kind);
  add(InstructionKind::alloc, 1, kBlock);
  add(InstructionKind::free, 1);
  PlayMemoryOptions options;
  options.launches_behind = 6;
  options.behind_in_stalls_only = true;
  return play_memory(program, options).peak_reserved.count;
}

// The device keeps up but for the time that a peer keeps it waiting, which ends when the host waits for it.
TEST(LaunchesBehind, OnlyWhileAPeerIsLate) {
  EXPECT_EQ(reserved_with({}, {}), kBlock);
  EXPECT_EQ(reserved_with({InstructionKind::stall}, {}), 2 * kBlock);
  EXPECT_EQ(reserved_with({InstructionKind::stall, InstructionKind::synchronize}, {}), kBlock);
  EXPECT_EQ(reserved_with({InstructionKind::stall}, {InstructionKind::synchronize}), kBlock);
}

// Six kernels after a wait, with a host quicker by half of the device's time: the device has come to the sixth when the host has issued the
// twelfth, six later, if the queue takes as many.
TEST(LaunchesBehind, TheLagGrowsFromEachWait) {
  const auto reserved_after = [](int kernels, std::int64_t queue) {
    StepProgram program = program_with(kernels);
    const Instruction kernel{InstructionKind::kernel, kComputeStream, Category::temporary, 0, 0, 0};
    program.step.insert(program.step.begin() + 2, 6, kernel);
    program.step.insert(program.step.begin() + 2, {InstructionKind::synchronize, kComputeStream, Category::temporary, 0, 0, 0});
    PlayMemoryOptions options;
    options.launches_behind = queue;
    options.lead = 0.5;
    options.steps = 1;
    return play_memory(program, options).peak_reserved.count;
  };
  EXPECT_EQ(reserved_after(5, 100), 2 * kBlock);
  EXPECT_EQ(reserved_after(6, 100), kBlock);
  EXPECT_EQ(reserved_after(4, 4), kBlock);
}

// Where giving segments back comes too late, the run ends with the allocation that needed them.
TEST(LaunchesBehind, AFatalShortageEndsTheRun) {
  PlayMemoryOptions options;
  options.launches_behind = 4;
  options.shortage_is_fatal = true;
  options.capacity = Bytes(2 * kBlock);
  EXPECT_FALSE(play_memory(program_with(3), options).out_of_memory);
  options.capacity = Bytes(kBlock);
  const MemoryTrace trace = play_memory(program_with(3), options);
  ASSERT_TRUE(trace.out_of_memory);
  EXPECT_EQ(trace.out_of_memory->requested, Bytes(kBlock));
}

// A queue of six entries holds two collectives: the one that frees them is the second.
TEST(LaunchesBehind, ACollectiveIsThreeEntries) {
  EXPECT_EQ(reserved_with({InstructionKind::stall}, {InstructionKind::collective, InstructionKind::kernel, InstructionKind::kernel}),
            2 * kBlock);
  EXPECT_EQ(reserved_with({InstructionKind::stall}, {InstructionKind::collective, InstructionKind::collective}), kBlock);
}

}  // namespace
}  // namespace plimsoll

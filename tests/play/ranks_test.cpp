// Pipelines as their ranks' programs make them: every schedule is written as programs with sends and receives, and played.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/play.hpp"

namespace plimsoll {
namespace {

// Streams, as communicators have them: one for each direction of activations and of gradients.
constexpr StreamId kActivationsIn = 1, kActivationsOut = 2, kGradientsIn = 3, kGradientsOut = 4;

/// What passes and transfers take, by kernels of some bytes.
struct Work {
  std::int64_t forward = 1LL << 30, backward = 2LL << 30, transfer = 64 << 10;
};

/// One rank's program: each slot receives what it needs, computes, and sends on.
class RankWriter {
 public:
  RankWriter(const Schedule& schedule, int rank, const Work& work) : schedule_(schedule), rank_(rank), work_(work) {
    program.streams = {"compute", "activations in", "activations out", "gradients in", "gradients out"};
    for (const Slot& slot : schedule.ranks[static_cast<std::size_t>(rank)]) {
      slots.push_back(program.step.size());
      write(slot);
    }
  }
  StepProgram program;
  std::vector<std::size_t> slots;  ///< instructions at which they begin

 private:
  void write(const Slot& slot) {
    const int stage = schedule_.stage_of(rank_, slot.chunk), last = schedule_.model_stages() - 1;
    if (slot.pass == Pass::weight_gradient) return kernel(work_.backward / 2);
    const bool forward = slot.pass == Pass::forward;
    const StreamId in = forward ? kActivationsIn : kGradientsIn, out = forward ? kActivationsOut : kGradientsOut;
    const int from = forward ? stage - 1 : stage + 1, to = forward ? stage + 1 : stage - 1;
    const auto other = [&](int neighbour) { return neighbour >= 0 && neighbour <= last ? rank_of(neighbour) : rank_; };
    if (other(from) != rank_) {
      transfer(CollectiveKind::receive, other(from), in);
      wait(kComputeStream, in);
    }
    kernel(forward ? work_.forward : slot.pass == Pass::backward ? work_.backward : work_.backward / 2);
    if (other(to) == rank_) return;
    wait(out, kComputeStream);
    transfer(CollectiveKind::send, other(to), out);
  }
  int rank_of(int stage) const {
    for (int rank = 0; rank < schedule_.shape.stages; ++rank)
      for (int chunk = 0; chunk < schedule_.shape.chunks; ++chunk)
        if (schedule_.stage_of(rank, chunk) == stage) return rank;
    return -1;
  }
  void kernel(std::int64_t bytes) {
    program.kernels.push_back({Unspecified{KernelKind::elementwise, DType::bf16, 0, bytes, 0}});
    add(InstructionKind::kernel, kComputeStream, program.kernels.size() - 1);
  }
  void transfer(CollectiveKind kind, int peer, StreamId stream) {
    program.collectives.push_back({kind, Group::pipeline, work_.transfer, DType::bf16, peer});
    add(InstructionKind::collective, stream, program.collectives.size() - 1);
  }
  void wait(StreamId waiting, StreamId awaited) {
    add(InstructionKind::record_event, awaited, awaited);
    add(InstructionKind::wait_event, waiting, awaited);
  }
  void add(InstructionKind kind, StreamId stream, std::size_t id) {
    program.step.push_back({kind, stream, Category::temporary, static_cast<std::uint32_t>(id), 0, 0});
  }

  const Schedule& schedule_;
  int rank_;
  Work work_;
};

Pricing pricing() {
  Pricing pricing{parse_cluster("8xmi300x"), {}, 1, 1, 1, {}, {}};
  pricing.groups.fill(Topology(pricing.cluster).group({0, 2, 1}));
  return pricing;
}

std::vector<Timeline> played(const Schedule& schedule, const Work& work, const Pricing& prices) {
  Pricer pricer(prices);
  std::vector<Score> ranks;
  for (int rank = 0; rank < schedule.shape.stages; ++rank) ranks.push_back(pricer.score(RankWriter(schedule, rank, work).program));
  return play_ranks(ranks, prices);
}

/// The schedule's own makespan with the times that the kernels and transfers have.
double makespan(const Schedule& schedule, const Work& work, const Pricing& prices) {
  const auto seconds = [&](std::int64_t bytes) {
    return price(Kernel{Unspecified{KernelKind::elementwise, DType::bf16, 0, bytes, 0}}, prices.cluster.accelerator);
  };
  const Collective send{CollectiveKind::send, Group::pipeline, work.transfer, DType::bf16};
  PipelineTimes times;
  times.stages = {{seconds(work.forward), seconds(work.backward), seconds(work.backward / 2), seconds(work.backward / 2)}};
  times.point_to_point = price(send, prices.groups[static_cast<std::size_t>(Group::pipeline)], prices.cluster);
  return play_pipeline(schedule, times).makespan.value;
}

struct Case {
  const char* schedule;
  int stages, micro_batches, chunks;
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.schedule << ", " << each.stages << " stages"; }

class PlayRanks : public ::testing::TestWithParam<Case> {};

// A slot begins when its rank is free and what it needs has come: the recurrence of play_pipeline, which the ranks' programs must come to as
// well, whatever the schedule.
TEST_P(PlayRanks, TakesAsLongAsItsSchedule) {
  const Case& each = GetParam();
  const Schedule schedule = make_schedule(each.schedule, each.stages, each.micro_batches, each.chunks);
  const Pricing prices = pricing();
  const std::vector<Timeline> timelines = played(schedule, {}, prices);
  const double wanted = makespan(schedule, {}, prices);
  for (const Timeline& timeline : timelines) {
    EXPECT_NEAR(timeline.step.value, wanted, 1e-9 * wanted);
    EXPECT_NEAR(timeline.sum().value, timeline.step.value, 1e-9 * wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, PlayRanks,
                         ::testing::Values(Case{"gpipe", 4, 8, 1}, Case{"1f1b", 4, 8, 1}, Case{"1f1b", 4, 2, 1},
                                           Case{"interleaved-1f1b", 4, 8, 2}, Case{"interleaved-1f1b", 4, 12, 2}, Case{"zb-h1", 4, 8, 1},
                                           Case{"zb-h2", 4, 8, 1}),
                         [](const auto& info) {
                           std::string name = info.param.schedule;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_" + std::to_string(info.param.micro_batches);
                         });

// The first stage of 1F1B waits (p − 1)(F + B) for its last gradients: what is not its own work is bubble and transfers.
TEST(PlayRanks, WhatARankWaitsForIsBubble) {
  const Schedule schedule = make_schedule("1f1b", 4, 8, 1);
  const Pricing prices = pricing();
  Work work;
  work.transfer = 0;
  const Timeline first = played(schedule, work, prices).front();
  EXPECT_NEAR((first.bubble + first.transfers).value, (first.step - first.compute).value, 1e-12);
  EXPECT_GT(first.bubble.value, 3.0 / 11.0 * first.step.value * 0.95);
}

// A receive that nobody sends: the ranks' programs contradict each other, which is a defect of whoever wrote them.
TEST(PlayRanks, AReceiveWithoutASendIsAnError) {
  Pricer pricer(pricing());
  StepProgram program;
  program.streams = {"compute", "pipeline"};
  program.collectives = {{CollectiveKind::receive, Group::pipeline, 1 << 20, DType::bf16, 1}};
  program.step = {{InstructionKind::collective, 1, Category::temporary, 0, 0, 0}};
  std::vector<Score> ranks;
  ranks.push_back(pricer.score(program));
  ranks.push_back(pricer.score(StepProgram{}));
  EXPECT_THROW(play_ranks(ranks, pricer.pricing()), Error);
}

// ---- the host ------------------------------------------------------------------------------------------------------

StepProgram of_kernels(int count, std::int64_t bytes) {
  StepProgram program;
  program.kernels = {{Unspecified{KernelKind::elementwise, DType::bf16, 0, bytes, 0}}};
  for (int i = 0; i < count; ++i) program.step.push_back({InstructionKind::kernel, kComputeStream, Category::temporary, 0, 0, 0});
  return program;
}

Pricing with_launch(double seconds) {
  Pricing prices = pricing();
  prices.host.launch = Seconds(seconds);
  return prices;
}

// Ten kernels of about 20 µs, issued in 5 µs each: the host is ahead and the device decides. Issued in 100 µs each: the host decides, 1 ms.
TEST(PlayHost, TheSlowerOfHostAndDeviceDecides) {
  const StepProgram program = of_kernels(10, 64 << 20);
  const double alone = play_time(program, pricing()).step.value;
  EXPECT_NEAR(play_time(program, with_launch(5e-6)).step.value, alone, 1e-9);
  const Timeline late = play_time(program, with_launch(100e-6));
  EXPECT_NEAR(late.step.value, 1e-3, 1e-9);
  EXPECT_NEAR(late.sum().value, late.step.value, 1e-12);
}

// Where the host waits for the device at the step's end it cannot run ahead: the next step begins with its first launch.
TEST(PlayHost, AHostThatWaitsIssuesTheNextStepLate) {
  StepProgram program = of_kernels(10, 64 << 20);
  const double alone = play_time(program, with_launch(5e-6)).step.value;
  program.step.push_back({InstructionKind::synchronize, kComputeStream, Category::temporary, 0, 0, 0});
  EXPECT_NEAR(play_time(program, with_launch(5e-6)).step.value, alone + 5e-6, 1e-9);
}

// A host that reads a value of the compute stream (`id` 1) waits for that stream alone, and the second kernel runs beside three copies
// of another stream; a host that waits for the whole device has it run behind them.
TEST(PlayHost, AValueIsReadWithoutWaitingForOtherStreams) {
  static constexpr Copy kCopy{Copy::Direction::host_to_device, 16 << 20};
  const auto step = [](std::uint32_t whom) {
    StepProgram program = of_kernels(2, 1 << 30);
    program.streams.emplace_back("other");
    program.step.insert(program.step.begin() + 1, {InstructionKind::synchronize, kComputeStream, Category::temporary, whom, 0, 0});
    program.copies.push_back(kCopy);
    for (int i = 0; i < 3; ++i)
      program.step.insert(program.step.begin(), {InstructionKind::copy, 1, Category::temporary, 0, 0, 0});
    program.step.push_back({InstructionKind::synchronize, kComputeStream, Category::temporary, 0, 0, 0});
    return play_time(program, with_launch(1e-6)).step.value;
  };
  const double kernel = play_time(of_kernels(1, 1 << 30), pricing()).step.value, copies = 3 * price(kCopy, pricing().cluster).value;
  ASSERT_GT(copies, kernel);
  EXPECT_NEAR(step(0), copies + kernel, 0.1 * kernel);
  EXPECT_NEAR(step(1), std::max(copies, 2 * kernel), 0.1 * kernel);
}

// Work of the host between two kernels delays the second only: 300 µs, while the first runs 20.
TEST(PlayHost, PiecesOfWorkTakeTheirTime) {
  StepProgram program = of_kernels(1, 1024);
  program.step.push_back({InstructionKind::host, kComputeStream, Category::temporary, static_cast<std::uint32_t>(HostWork::unit), 3, 0});
  Pricing prices = with_launch(1e-6);
  prices.host.work[static_cast<std::size_t>(HostWork::unit)] = Seconds(100e-6);
  EXPECT_NEAR(play_time(program, prices).step.value, 301e-6, 1e-9);
}

// A queue of four launches: the host issues the fifth when the first has started, so it is never more than four ahead.
TEST(PlayHost, TheQueueIsBounded) {
  StepProgram program = of_kernels(64, 64 << 20);
  program.step.push_back({InstructionKind::host, kComputeStream, Category::temporary, static_cast<std::uint32_t>(HostWork::unit), 1, 0});
  Pricing prices = with_launch(1e-6);
  const double alone = play_time(program, prices).step.value, kernel = alone / 64;
  prices.host.work[static_cast<std::size_t>(HostWork::unit)] = Seconds(40 * kernel);
  EXPECT_NEAR(play_time(program, prices).step.value, alone, 1e-6);  // hidden behind sixty launches
  prices.host.queue = 4;
  EXPECT_GT(play_time(program, prices).step.value, alone + 30 * kernel);
}

// A host issues events and waits at no cost, so it does not matter whether it works before them or behind them; before it waits for the
// device itself its work is hidden behind the device's, after that it is not.
TEST(PlayHost, WorkLiesBetweenLaunchesWhereverEventsAre) {
  constexpr std::size_t kWork = 1, kWait = 4;
  const Instruction work{InstructionKind::host, kComputeStream, Category::temporary, static_cast<std::uint32_t>(HostWork::unit), 3, 0};
  const auto step = [&](std::size_t place, bool synchronizes) {
    StepProgram program = of_kernels(2, 64 << 20);
    program.streams.emplace_back("other");
    const std::vector<Instruction> between = {
        {InstructionKind::record_event, kComputeStream, Category::temporary, 0, 0, 0},
        {InstructionKind::wait_event, 1, Category::temporary, 0, 0, 0},
        {synchronizes ? InstructionKind::synchronize : InstructionKind::record_event, 1, Category::temporary, 1, 0, 0}};
    program.step.insert(program.step.begin() + 1, between.begin(), between.end());
    program.step.insert(program.step.begin() + static_cast<std::ptrdiff_t>(place), work);
    Pricing prices = with_launch(1e-6);
    prices.host.work[static_cast<std::size_t>(HostWork::unit)] = Seconds(2e-6);
    return play_time(program, prices).step.value;
  };
  EXPECT_DOUBLE_EQ(step(kWork, false), step(kWait, false));
  EXPECT_NEAR(step(kWait, true) - step(kWork, true), 6e-6, 1e-9);
}

// ---- repeated micro-batches ------------------------------------------------------------------------------------------

// A stretch written once and run a thousand times takes what a thousand of them written out take.
TEST(PlayRepeated, AsLongAsWrittenOut) {
  const int kTimes = 1000;
  StepProgram program = of_kernels(6, 1 << 20);
  program.repeated = {1, 5, kTimes};
  const Pricing prices = with_launch(3e-6);
  const Timeline folded = play_time(program, prices), whole = play_time(of_kernels(2 + 4 * kTimes, 1 << 20), prices);
  EXPECT_NEAR(folded.step.value, whole.step.value, 1e-6 * whole.step.value);
  EXPECT_NEAR(folded.sum().value, folded.step.value, 1e-9 * whole.step.value);
  EXPECT_NEAR(folded.by_kernel[static_cast<std::size_t>(KernelKind::elementwise)].value,
              whole.by_kernel[static_cast<std::size_t>(KernelKind::elementwise)].value, 1e-9);
}

// Collectives over all ranks hold up nobody where one rank stands for all: more repetitions than anybody could play one by one take what
// they are, times the last of a few.
TEST(PlayRepeated, ARankAloneMeetsNobody) {
  const auto repeated = [](std::int64_t times) {
    StepProgram program = of_kernels(6, 1 << 20);
    program.collectives.push_back({CollectiveKind::all_reduce, Group::world, 1 << 20, DType::bf16});
    program.step.insert(program.step.begin() + 3, {InstructionKind::collective, kComputeStream, Category::temporary, 0, 0, 0});
    program.repeated = {1, 6, times};
    return program;
  };
  Pricer pricer(with_launch(3e-6));
  const auto step = [&](std::int64_t times) {
    std::vector<Score> ranks;
    ranks.push_back(pricer.score(repeated(times)));
    return play_ranks(ranks, pricer.pricing()).front().step.value;
  };
  const double each = (step(2000) - step(1000)) / 1000;
  constexpr std::int64_t kMany = 100'000'000;
  EXPECT_NEAR(step(kMany), each * static_cast<double>(kMany), 1e-6 * each * static_cast<double>(kMany));
}

/// Ranks of 1F1B, whose kernels, transfers and host's work are drawn, and differ from rank to rank.
struct DrawnPipeline {
  int stages;
  std::vector<Work> works;
  Pricing prices = pricing();

  explicit DrawnPipeline(std::mt19937_64& draw) : stages(static_cast<int>(2 + draw() % 4)) {
    const auto up_to = [&](std::uint64_t most) { return static_cast<std::int64_t>(1 + draw() % most); };
    const bool equal = draw() % 2 == 0;
    for (int rank = 0; rank < stages; ++rank) {
      const Work work{up_to(64) << 20, up_to(128) << 20, up_to(8) << 20};
      works.push_back(equal && rank > 0 ? works.front() : work);
    }
    prices.host.launch = Seconds(1e-6 * static_cast<double>(draw() % 12));
    prices.host.queue = up_to(16);
    prices.gap = Seconds(1e-7 * static_cast<double>(draw() % 4));
    prices.memory_slowdown = draw() % 2 == 0 ? 1 : 1.5;
  }

  /// So many micro-batches; `folded`: those between the first steady ones and the last are written once.
  std::vector<Timeline> played(int micro_batches, bool folded) const {
    const int written = folded ? 3 * stages : micro_batches;
    const Schedule schedule = make_schedule("1f1b", stages, written, 1);
    Pricer pricer(prices);
    std::vector<Score> ranks;
    for (int rank = 0; rank < stages; ++rank) {
      RankWriter writer(schedule, rank, works[static_cast<std::size_t>(rank)]);
      const auto warm_up = static_cast<std::size_t>(stages - 1 - rank);  // forward passes; then one forward and one backward in turn
      if (folded) writer.program.repeated = {writer.slots[warm_up + 2], writer.slots[warm_up + 4], micro_batches - written + 1};
      ranks.push_back(pricer.score(writer.program));
    }
    return play_ranks(ranks, prices);
  }
};

// A pipeline's repeated micro-batches take what they take written out, on every rank and part for part, whatever its ranks take.
TEST(PlayRepeated, APipelineAsLongAsWrittenOut) {
  std::mt19937_64 draw(20);
  for (int i = 0; i < 200; ++i) {
    const DrawnPipeline pipeline(draw);
    const int micro_batches = 4 * pipeline.stages + static_cast<int>(draw() % 60);
    const auto folded = pipeline.played(micro_batches, true), whole = pipeline.played(micro_batches, false);
    for (std::size_t rank = 0; rank < whole.size(); ++rank) {
      const double step = whole[rank].step.value;
      EXPECT_NEAR(folded[rank].step.value, step, 1e-8 * step) << i << ", rank " << rank;
      EXPECT_NEAR(folded[rank].sum().value, step, 1e-8 * step);
      EXPECT_NEAR(folded[rank].compute.value, whole[rank].compute.value, 1e-8 * step);
      EXPECT_NEAR(folded[rank].transfers.value, whole[rank].transfers.value, 1e-8 * step);
      EXPECT_NEAR(folded[rank].bubble.value, whole[rank].bubble.value, 1e-8 * step);
      EXPECT_NEAR(folded[rank].host.value, whole[rank].host.value, 1e-8 * step);
    }
  }
}

// More micro-batches than anybody could play one by one: the ranks pass over those that only repeat the last, each of which takes as long.
TEST(PlayRepeated, APipelinePassesOverWhatOnlyRepeats) {
  std::mt19937_64 draw(43);
  DrawnPipeline pipeline(draw);
  pipeline.works.assign(pipeline.works.size(), {});
  const auto step = [&](int micro_batches) { return pipeline.played(micro_batches, true).front().step.value; };
  const double each = (step(2000) - step(1000)) / 1000;
  constexpr int kMany = 100'000'000;
  EXPECT_NEAR(step(kMany), each * kMany, 1e-6 * each * kMany);
}

}  // namespace
}  // namespace plimsoll

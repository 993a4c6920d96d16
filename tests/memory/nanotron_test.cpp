// nanotron's lowering against measured runs: Hugging Face's sweep on H100 80 GB, December 2024 (max reserved bytes of rank 0 at step 3).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/memory.hpp"
#include "program/lower.hpp"

namespace plimsoll {
namespace {

constexpr double kGiB = 0x1p30;

struct Size {
  std::int64_t hidden, layers, heads, ffn;
  bool tied;
};
constexpr Size k1B{2048, 16, 32, 8192, true}, k3B{3072, 28, 32, 8192, true}, k8B{4096, 32, 32, 14336, false},
    k70B{8192, 80, 64, 28672, false};

Model llama(const Size& size) {
  Model model;
  model.hidden_size = size.hidden;
  model.layers = size.layers;
  model.heads = model.kv_heads = size.heads;
  model.head_dim = size.hidden / size.heads;
  model.intermediate_size = size.ffn;
  model.vocab_size = 131072;
  model.tied_embeddings = size.tied;
  model.blocks.resize(1);
  return model;
}

struct MeasuredRun {
  Size size;
  int dp, tp, pp;
  std::int64_t micro_batch, micro_batches;
  DataParallel data_parallel;
  std::vector<int> stages;
  double reserved;  ///< published, GiB
};

Strategy strategy_of(const MeasuredRun& run) {
  Strategy strategy;
  strategy.framework = "nanotron";
  strategy.dp = run.dp;
  strategy.tp = run.tp;
  strategy.pp = run.pp;
  strategy.pp_layers = run.stages;
  strategy.pp_schedule = "1f1b";
  strategy.sequence_parallel = run.tp > 1;
  strategy.micro_batch = run.micro_batch;
  strategy.micro_batches = strategy.grad_accum = run.micro_batches;
  strategy.seq_len = 4096;
  strategy.data_parallel = run.data_parallel;
  strategy.optimizer = OptimizerKind::adamw;
  strategy.recompute.kind = Recompute::Kind::none;
  return strategy;
}

MemoryTrace play(const MeasuredRun& run) {
  PlayMemoryOptions options;
  options.steps = 3;
  return play_memory(program::lower_nanotron(program::on_h100(llama(run.size), strategy_of(run))), options);
}

// Where no collective overlaps with compute, nothing depends on how far the host runs ahead: within 0.4 %.
TEST(Nanotron, ReservedOfMeasuredRuns) {
  const std::vector<MeasuredRun> runs = {
      {k1B, 8, 1, 1, 1, 32, DataParallel::zero1, {}, 24.24},      {k1B, 32, 1, 1, 2, 4, DataParallel::zero1, {}, 34.86},
      {k1B, 256, 1, 1, 1, 1, DataParallel::zero1, {}, 21.67},     {k1B, 64, 1, 1, 1, 4, DataParallel::ddp, {}, 36.66},
      {k1B, 64, 1, 1, 2, 2, DataParallel::ddp, {}, 50.16},        {k1B, 128, 1, 1, 2, 1, DataParallel::ddp, {}, 48.55},
      {k1B, 16, 1, 2, 8, 1, DataParallel::zero1, {10, 6}, 41.34}, {k1B, 4, 1, 2, 2, 32, DataParallel::zero1, {10, 6}, 26.41},
      {k1B, 64, 2, 1, 4, 1, DataParallel::zero1, {}, 27.17},      {k1B, 4, 32, 1, 64, 1, DataParallel::zero1, {}, 26.28},
      {k8B, 32, 16, 1, 4, 2, DataParallel::zero1, {}, 12.01},     {k8B, 4, 32, 2, 8, 8, DataParallel::zero1, {18, 14}, 9.38},
      {k70B, 16, 32, 1, 8, 2, DataParallel::zero1, {}, 51.93},    {k70B, 8, 32, 2, 8, 4, DataParallel::zero1, {41, 39}, 43.57},
  };
  for (const MeasuredRun& run : runs) {
    const double predicted = static_cast<double>(play(run).peak_reserved.count) / kGiB;
    EXPECT_NEAR(predicted, run.reserved, 0.004 * run.reserved)
        << "h " << run.size.hidden << " dp " << run.dp << " tp " << run.tp << " pp " << run.pp << " micro-batch " << run.micro_batch;
  }
}

// A deep pipeline's first warm-up: the second stage is late with its second receive, and what the first stage's host issues meanwhile, two
// forward passes of a pipeline of four, frees nothing that a collective used. Later runs of the same sweep, of the 27th of December.
TEST(Nanotron, ReservedWhileTheNextStageIsLate) {
  const std::vector<MeasuredRun> runs = {
      {k1B, 2, 8, 4, 4, 32, DataParallel::zero1, {5, 5, 5, 1}, 6.60},
      {k1B, 1, 8, 4, 8, 32, DataParallel::ddp, {5, 5, 5, 1}, 12.38},
      {k1B, 2, 8, 4, 32, 4, DataParallel::zero1, {5, 5, 5, 1}, 46.13},
      {k1B, 4, 16, 4, 8, 8, DataParallel::zero1, {5, 5, 5, 1}, 7.71},
      {k1B, 8, 4, 4, 4, 8, DataParallel::zero1, {5, 5, 5, 1}, 11.42},
      {k3B, 8, 2, 4, 1, 32, DataParallel::zero1, {8, 8, 8, 4}, 15.57},
      {k3B, 2, 16, 4, 16, 8, DataParallel::zero1, {8, 8, 8, 4}, 30.38},
      {k8B, 2, 16, 4, 16, 8, DataParallel::zero1, {9, 9, 9, 5}, 49.16},
      {k1B, 2, 8, 8, 16, 8, DataParallel::zero1, {3, 3, 2, 3, 2, 3, 0, 0}, 32.16},
  };
  for (const MeasuredRun& run : runs) {
    PlayMemoryOptions options;
    options.steps = 3;
    options.launches_behind = program::nanotron_launch_queue();
    options.behind_in_stalls_only = true;
    const MemoryTrace trace = play_memory(program::lower_nanotron(program::on_h100(llama(run.size), strategy_of(run))), options);
    EXPECT_NEAR(static_cast<double>(trace.peak_reserved.count) / kGiB, run.reserved, 0.004 * run.reserved)
        << "h " << run.size.hidden << " dp " << run.dp << " tp " << run.tp << " pp " << run.pp << " micro-batch " << run.micro_batch;
  }
}

// Persistent bytes of h 2048, 16 layers, vocabulary 131072 tied: P = 131072 · 2048 + 16 · (4 · 2048² + 3 · 8192 · 2048 + 2 · 2048) + 2048
// = 1,342,244,864 parameters. 2 P weights + 4 P gradients + 12 P / dp (fp32 weights, two moments), two BLAS workspaces of 32 MiB, and per
// layer rotary tables of 2 · 2 · 4096 · 32 B.
TEST(Nanotron, PersistentStates) {
  const MeasuredRun run{k1B, 8, 1, 1, 1, 32, DataParallel::zero1, {}, 0};
  const double parameters = 1342244864.0;
  const double expected = 6 * parameters + 12 * parameters / 8 + 2 * 33554432.0 + 16 * 2 * 2 * 4096 * 32;
  EXPECT_NEAR(static_cast<double>(play(run).persistent.count), expected, 1e6);
}

// Micro-batches recur: more of them than are recorded change nothing.
TEST(Nanotron, MicroBatchesRecur) {
  const MeasuredRun few{k1B, 8, 1, 2, 1, 5, DataParallel::zero1, {11, 5}, 0}, many{k1B, 8, 1, 2, 1, 64, DataParallel::zero1, {11, 5}, 0};
  EXPECT_EQ(play(few).peak_reserved, play(many).peak_reserved);
}

// … and each adds the same work: 4 (1 under way and 3 that are recorded), 3 and 40 micro-batches.
TEST(Nanotron, MicroBatchesThatAreWrittenOnceAreCounted) {
  const auto launches = [](std::int64_t micro_batches) {
    const MeasuredRun run{k1B, 8, 1, 2, 1, micro_batches, DataParallel::zero1, {11, 5}, 0};
    const StepProgram program = program::lower_nanotron(program::on_h100(llama(run.size), strategy_of(run)));
    std::int64_t count = 0;
    for (std::size_t i = 0; i < program.step.size(); ++i)
      if (program.step[i].kind == InstructionKind::kernel) count += program.repeated.runs_of(i);
    return count;
  };
  EXPECT_EQ(launches(40) - launches(4), 36 * (launches(4) - launches(3)));
}

TEST(Nanotron, RefusesWhatItsTrainerCannotRun) {
  MeasuredRun run{k1B, 1, 64, 1, 1, 4, DataParallel::zero1, {}, 0};  // 32 heads over 64 ranks
  EXPECT_THROW(program::lower_nanotron(program::on_h100(llama(run.size), strategy_of(run))), Error);
  run = {k3B, 1, 1, 8, 1, 4, DataParallel::ddp, {4, 4, 4, 4, 4, 4, 4, 0}, 0};  // 4 micro-batches fill no 8 stages
  EXPECT_THROW(program::lower_nanotron(program::on_h100(llama(run.size), strategy_of(run))), Error);
}

}  // namespace
}  // namespace plimsoll

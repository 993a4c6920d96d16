// Megatron-core 0.16.1's own allocator peaks (bench/corpus/allocator-megatron.json: PyTorch 2.15 caching allocator on a CUDA runtime
// without a GPU), rank by rank, against the lowering played through the modelled allocator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plimsoll/framework.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/rows.hpp"
#include "program/lower.hpp"

namespace plimsoll {
namespace {

/// What the row measured of a quantity; 0 when it did not.
double measured(const MeasuredRow& row, const char* quantity) {
  for (const Observed& observed : row.measured) {
    if (observed.quantity == quantity) return observed.value;
  }
  return 0;
}

double error(Bytes predicted, double seen) { return seen > 0 ? std::fabs(static_cast<double>(predicted.count) / seen - 1) : 0; }

TEST(MegatronRows, AllocatedPeaksAreThoseOfTheAllocatorItself) {
  const std::vector<MeasuredRow> rows = load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/bench/corpus/allocator-megatron.json");
  ASSERT_EQ(rows.size(), 41U);
  for (const MeasuredRow& row : rows) {
    ASSERT_TRUE(row.refused.empty()) << row.id << ": " << row.refused;
    const Strategy strategy = resolve(row.strategy, *row.model, *row.cluster);
    PlayMemoryOptions options;
    options.allocator = strategy.allocator;
    const MemoryTrace trace = play_memory(program::lower_megatron(*row.model, strategy, strategy.pp_rank.value_or(0)), options);
    EXPECT_LT(error(trace.peak_allocated, measured(row, quantity::allocated)), 1e-4) << row.id;
    EXPECT_LT(error(trace.peak_reserved, measured(row, quantity::reserved)), 0.02) << row.id;
    EXPECT_LT(error(trace.backward_peak, measured(row, quantity::backward_peak)), 1e-4) << row.id;
  }
}

/// Llama-3-405B cut to four layers over Transformer Engine's layers on eight B200 (SimuMax's measured runs, docs/b200): tensor, sequence,
/// pipeline and context parallel by exchange of heads.
TEST(MegatronRows, TransformerEnginesLayersAgreeWithMeasuredRuns) {
  int rows = 0;
  for (const MeasuredRow& row : load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/bench/corpus/simumax-b200.json")) {
    const double allocated = measured(row, quantity::allocated);
    if (allocated == 0 || row.id.find("405b") == std::string::npos) continue;
    const Strategy strategy = resolve(row.strategy, *row.model, *row.cluster);
    PlayMemoryOptions options;
    options.allocator = strategy.allocator;
    Bytes most_allocated(0), most_reserved(0);
    for (int rank = 0; rank < strategy.pp; ++rank) {
      const MemoryTrace trace = play_memory(program::lower_megatron(*row.model, strategy, rank), options);
      most_allocated = std::max(most_allocated, trace.peak_allocated);
      most_reserved = std::max(most_reserved, trace.peak_reserved);
    }
    EXPECT_LT(error(most_allocated, allocated), 1e-3) << row.id;
    EXPECT_LT(error(most_reserved, measured(row, quantity::reserved)), 0.02) << row.id;
    ++rows;
  }
  EXPECT_EQ(rows, 7);
}

/// Leaving out micro-batches of the steady state changes no peak: after some of them the allocator is in the same state after each.
TEST(MegatronRows, MicroBatchesOfTheSteadyStateMayBeLeftOut) {
  int shortened = 0;
  for (const MeasuredRow& row : load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/bench/corpus/allocator-megatron.json")) {
    Strategy strategy = resolve(row.strategy, *row.model, *row.cluster);
    if (strategy.micro_batches == 1) continue;
    strategy.micro_batches = 24;
    const int rank = strategy.pp_rank.value_or(0);
    const StepProgram whole = program::lower_megatron(*row.model, strategy, rank, true),
                      part = program::lower_megatron(*row.model, strategy, rank);
    ASSERT_LT(part.step.size(), whole.step.size()) << row.id;
    PlayMemoryOptions options;
    options.allocator = strategy.allocator;
    const MemoryTrace a = play_memory(whole, options), b = play_memory(part, options);
    // Blocks of a few hundred bytes may fall into other holes; in one row the allocator takes a last segment of 256 MiB after ten rounds.
    EXPECT_LT(error(b.peak_allocated, static_cast<double>(a.peak_allocated.count)), 1e-6) << row.id;
    EXPECT_LT(error(b.peak_reserved, static_cast<double>(a.peak_reserved.count)), 0.015) << row.id;
    ++shortened;
  }
  EXPECT_GE(shortened, 14);
}

}  // namespace
}  // namespace plimsoll

#include <gtest/gtest.h>

#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/formula.hpp"
#include "plimsoll/play.hpp"

namespace plimsoll {
namespace {

TEST(Textbook, SevenBillionInFp32OnFourGpus) {
  // 4 + 4 + 8 B: 16·7e9 = 112 GB; (4+4+8/4)·7e9 = 70; (4+12/4)·7e9 = 49; 16/4·7e9 = 28.
  const auto states = zero_model_states(7e9, 4, StateBytes::single_precision());
  EXPECT_DOUBLE_EQ(states[0], 112e9);
  EXPECT_DOUBLE_EQ(states[1], 70e9);
  EXPECT_DOUBLE_EQ(states[2], 49e9);
  EXPECT_DOUBLE_EQ(states[3], 28e9);
}

TEST(Textbook, TheZeroPapersFigure) {
  // Rajbhandari et al. 2020, figure 1: 7.5e9 parameters, 64 GPUs, 2 + 2 + 12 B: 120 / 31.4 / 16.6 / 1.9 GB.
  const auto states = zero_model_states(7.5e9, 64, StateBytes::mixed_precision());
  EXPECT_DOUBLE_EQ(states[0], 120e9);
  EXPECT_DOUBLE_EQ(states[1], 31.40625e9);
  EXPECT_DOUBLE_EQ(states[2], 16.640625e9);
  EXPECT_DOUBLE_EQ(states[3], 1.875e9);
}

TEST(Textbook, MoreGpusNeverNeedMore) {
  for (std::int64_t gpus = 1; gpus < 4096; gpus *= 2) {
    const auto few = zero_model_states(1e9, gpus, StateBytes::mixed_precision());
    const auto more = zero_model_states(1e9, 2 * gpus, StateBytes::mixed_precision());
    for (std::size_t stage = 0; stage < 4; ++stage) EXPECT_LE(more[stage], few[stage]);
    for (std::size_t stage = 1; stage < 4; ++stage) EXPECT_LE(few[stage], few[stage - 1]);
  }
}

TEST(Textbook, BesideWhatFrameworksKeep) {
  // Llama-3-8B over 8 ranks: the distributed optimizer (6 + 12/8)·P, FSDP's fp32 shards 16/8·P.
  double distributed = 0, shards = 0;
  for (const FrameworkStates& one : framework_states(8'030'261'248.0, 8)) {
    if (one.recipe == "megatron distributed optimizer") distributed = one.bytes_per_gpu;
    if (one.recipe == "fsdp, fp32 shards") shards = one.bytes_per_gpu;
  }
  EXPECT_DOUBLE_EQ(distributed, 60'226'959'360.0);
  EXPECT_DOUBLE_EQ(shards, 16'060'522'496.0);
}

TEST(Textbook, OneGpuSharesNothing) {
  for (const double state : zero_model_states(1e9, 1, StateBytes::single_precision())) EXPECT_DOUBLE_EQ(state, 16e9);
  EXPECT_THROW(zero_model_states(1e9, 0, StateBytes::single_precision()), Error);
}

}  // namespace
}  // namespace plimsoll

/// Pipeline schedules whose weight gradients have slots of their own, as Primus' pipeline runs them on Megatron: what a rank does, in
/// order. Source: AMD-AGI/Primus fd1eeabb, primus/core/pipeline_parallel and primus/backends/megatron/core/pipeline_parallel/primuspipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "plimsoll/schedule.hpp"
#include "plimsoll/strategy.hpp"
#include "program/frameworks/megatron/schedule.hpp"
#include "program/stage_actions.hpp"

namespace plimsoll::program {

/// The stages of the model that a pipeline rank holds, by chunk.
std::vector<int> stages_of_rank(const Strategy& strategy, int pipeline_rank);
/// How many of a step's micro-batches are recorded: those that fill and drain the pipeline, and one turn
/// of as many as stages between.
std::int64_t split_micro_batches(const Strategy& strategy);

/// What one rank does.
struct SplitPlan {
  std::vector<StageAction> actions;              ///< receives stand where the neighbour sends
  std::vector<int> stages;                       ///< by chunk
  std::vector<int> rank_of;                      ///< by stage
  std::size_t repeat_begin = 0, repeat_end = 0;  ///< actions that stand for those of the micro-batches left out
  std::int64_t repeat_times = 1;
  MicroBatchEvents received = {};  ///< activations of each stage, then gradients
};

/// Of `micro_batches`; the rank's whole step has those of the strategy.
SplitPlan split_plan(const Strategy& strategy, int pipeline_rank, std::int64_t micro_batches, Tape& tape);

/// Runs `rank.split`, then finalize_model_grads.
void run_split_schedule(MegatronRank& rank, const Tensor& scale);

}  // namespace plimsoll::program

/// Megatron-core's pipeline schedules on one rank, variable by variable: what is alive between two passes is decided by them.
/// Source: megatron/core/pipeline_parallel/schedules.py of Megatron-core 0.16.1.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "program/modules/megatron/gpt.hpp"
#include "program/point_to_point.hpp"
#include "program/routine.hpp"
#include "program/wrappers/megatron/data_parallel.hpp"

namespace plimsoll::program {

struct SplitPlan;

/// What the schedules need to know of the rank and its batch.
struct MegatronRank {
  Tape& tape;
  MegatronRuntime& runtime;
  const MegatronConfig& config;
  std::vector<std::unique_ptr<MegatronChunk>>& chunks;
  std::vector<std::unique_ptr<MegatronDataParallel>>& wrapped;
  std::int64_t micro_batch = 1, length = 1, micro_batches = 1;
  std::int64_t left_out = 0;                     ///< further micro-batches of the steady state that are not recorded
  Repeated repeated = {};                        ///< out: the passes that stand for them
  std::int64_t stages = 1, rank = 0;             ///< of the pipeline
  std::int64_t warm_up = 0;                      ///< micro-batches that go forward before the first comes back, in 1F1B
  std::optional<BatchedTransfers> batched = {};  ///< of a pipeline with one chunk a rank: batch_p2p_comm
  std::optional<PairedTransfers> paired = {};    ///< of the interleaved schedule: overlap_p2p_comm
  const SplitPlan* split = nullptr;              ///< of a schedule whose weight gradients have slots of their own
  DeferredMicroBatches deferred = {};            ///< defer_embedding_wgrad_compute
  std::vector<Routine>* routines = nullptr;      ///< by chunk: passes between the first and the last are called; null: all run
  bool aligns_gathers = false;                   ///< param_sync_func: the interleaved schedule starts gathering a chunk's weights
  bool deallocates_outputs = true;               ///< what was sent gives its memory back
  bool cuts_transfers = false;  ///< scatter_gather_tensors_in_pipeline: each tensor-parallel rank sends its part, the receivers gather them
  Tensor auxiliary_loss_scale = {};  ///< MoEAuxLossAutoScaler.main_loss_backward_scale: made by the first pass forward, kept for good
};

/// forward_backward_no_pipelining, …_pipelining_without_interleaving or …_with_interleaving, as the rank needs; then
/// finalize_model_grads. `scale` is the optimizer's loss scale.
void run_megatron_schedule(MegatronRank& rank, const Tensor& scale);

}  // namespace plimsoll::program

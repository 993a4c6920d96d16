/// From a model, a resolved strategy and a device to the programs of the ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "plimsoll/framework.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/program.hpp"
#include "plimsoll/strategy.hpp"
#include "program/target_device.hpp"
#include "program/torch_release.hpp"

namespace plimsoll::program {

/// What a framework's code is run with. What it refers to must outlive it.
struct Lowering {
  const Model& model;
  const Strategy& strategy;  ///< resolved: the releases of the packages too
  TargetDevice device;

  TorchRelease torch() const { return TorchRelease(strategy.releases.of(Package::torch)); }
};

/// Which rank's program.
struct Rank {
  int pipeline = 0;  ///< its place in the pipeline
  /// Of many micro-batches those that only repeat others are left out (StepProgram::repeated), unless all are asked for.
  bool every_micro_batch = false;
  /// Passes, and batches' masks, that only repeat others are called (routine.hpp); else all run.
  bool calls_passes = true;
};

/// The programs of a run's ranks.
class RankSource {
 public:
  RankSource() = default;
  virtual ~RankSource() = default;
  RankSource(const RankSource&) = delete;
  RankSource& operator=(const RankSource&) = delete;
  /// The program of the rank at that place of the pipeline, if possible in the memory of `spare`, a program that nobody needs any more.
  /// Throws Error (refused): what has no lowering.
  virtual StepProgram rank(int pipeline_rank, StepProgram spare = {}) = 0;
  /// A program whose `step` has the same work in the same order, for reading its time alone: its memory is not told.
  virtual StepProgram work(int pipeline_rank, StepProgram spare = {}) { return rank(pipeline_rank, std::move(spare)); }
};

/// The source of a framework's programs. Throws Error (refused): a framework, an engine or a model without a lowering.
std::unique_ptr<RankSource> rank_source(const Lowering& run);

/// transformers' modules in eager PyTorch on one device: forward, backward, optimizer (plain engine).
StepProgram lower_hf_eager(const Lowering& run, const Rank& rank = {});
/// The same under DistributedDataParallel.
StepProgram lower_hf_ddp(const Lowering& run, const Rank& rank = {});
/// The same under FullyShardedDataParallel.
StepProgram lower_hf_fsdp1(const Lowering& run, const Rank& rank = {});
/// The same under fully_shard.
StepProgram lower_hf_fsdp2(const Lowering& run, const Rank& rank = {});
/// The same under deepspeed.initialize: ZeRO stages 0 to 3 with offload to the host.
StepProgram lower_hf_deepspeed(const Lowering& run, const Rank& rank = {});
/// transformers' modules under the strategy's engine, one of the above. Throws Error (refused): parallelism beyond data parallelism, other
/// engines.
StepProgram lower_transformers(const Lowering& run, const Rank& rank = {});

/// torchtune's fine-tuning recipes: full, LoRA and QLoRA.
StepProgram lower_torchtune(const Lowering& run, const Rank& rank = {});

/// llm-foundry's MPT under Composer's FSDP1.
StepProgram lower_llm_foundry(const Lowering& run, const Rank& rank = {});

/// MaxText's Llama layers on one rank, as XLA compiles them: FSDP, with or without replicas.
StepProgram lower_maxtext(const Lowering& run, const Rank& rank = {});

/// nanotron's Llama on one rank: torch DDP or ZeRO-1, tensor and pipeline parallel. Always without the micro-batches that repeat others.
StepProgram lower_nanotron(const Lowering& run, const Rank& rank = {});

/// Entries by which nanotron's host is ahead of the device (PlayMemoryOptions::launches_behind), all the time without a pipeline, while a
/// neighbour is late with one: every collective of PyTorch 2.1 marks what it uses by record_stream.
std::int64_t nanotron_launch_queue();

/// Megatron-DeepSpeed's GPT on one rank of DeepSpeed's pipeline engine, or, with ZeRO-2, of its plain one. Micro-batches of the steady
/// state beyond a few are always left out. To be played with DelayedFree::next_wait: the host hands out gathers without waiting for them.
StepProgram lower_megatron_deepspeed(const Lowering& run, const Rank& rank = {});

/// TorchTitan's trainer on one rank.
StepProgram lower_torchtitan(const Lowering& run, const Rank& rank = {});

/// Programs of a TorchTitan pipeline's ranks.
class TitanPipeline final : public RankSource {
 public:
  explicit TitanPipeline(const Lowering& run);
  ~TitanPipeline() override;

  /// What lower_torchtitan gives for this rank.
  StepProgram rank(int pipeline_rank, StepProgram spare = {}) override;
  /// The same of any rank.
  StepProgram recorded(const Rank& rank, StepProgram spare = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Megatron-core's GPTModel on one pipeline rank, with DDP buffers and either of its optimizers.
StepProgram lower_megatron(const Lowering& run, const Rank& rank = {});

/// Programs of a Megatron pipeline's ranks.
class MegatronPipeline final : public RankSource {
 public:
  explicit MegatronPipeline(const Lowering& run) : run_(run) {}

  /// What lower_megatron gives for this rank.
  StepProgram rank(int pipeline_rank, StepProgram spare = {}) override;
  StepProgram work(int pipeline_rank, StepProgram spare = {}) override;

 private:
  Lowering run_;
};

}  // namespace plimsoll::program

/// From a model and a resolved strategy to the program of one rank.
#pragma once

#include <memory>

#include "plimsoll/model.hpp"
#include "plimsoll/program.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::program {

/// transformers' modules in eager PyTorch on one device: forward, backward, optimizer (plain engine). Of many micro-batches those that only
/// repeat others are left out of the program (StepProgram::repeated), unless `every_micro_batch`; so below.
StepProgram lower_hf_eager(const Model& model, const Strategy& strategy, bool every_micro_batch = false);

/// The same under DistributedDataParallel.
StepProgram lower_hf_ddp(const Model& model, const Strategy& strategy, bool every_micro_batch = false);

/// The same under FullyShardedDataParallel.
StepProgram lower_hf_fsdp1(const Model& model, const Strategy& strategy, bool every_micro_batch = false);

/// The same under fully_shard.
StepProgram lower_hf_fsdp2(const Model& model, const Strategy& strategy, bool every_micro_batch = false);

/// transformers' modules under the strategy's engine: one of the above, or DeepSpeed's below.
/// Throws Error (refused): parallelism beyond data parallelism, other engines.
StepProgram lower_transformers(const Model& model, const Strategy& strategy, bool every_micro_batch = false);

/// TorchTitan's trainer, one rank of pipeline rank `pipeline_rank`. Micro-batches that only repeat the steady state of the schedule are
/// left out of the program, unless `every_micro_batch`.
StepProgram lower_torchtitan(const Model& model, const Strategy& strategy, int pipeline_rank, bool every_micro_batch = false);

/// Programs of a TorchTitan pipeline's ranks. What ranks with equal stages do is recorded once, and each rank's program is put together
/// from it (pipeline_passes.hpp). `model` and `strategy` must outlive it.
class TitanPipeline {
 public:
  TitanPipeline(const Model& model, const Strategy& strategy);
  ~TitanPipeline();
  TitanPipeline(const TitanPipeline&) = delete;
  TitanPipeline& operator=(const TitanPipeline&) = delete;

  /// What lower_torchtitan gives for this rank, if possible in the memory of `spare`, a program that nobody needs any more.
  StepProgram rank(int pipeline_rank, StepProgram spare = {});
  /// The same without other ranks' help.
  StepProgram recorded(int pipeline_rank, bool every_micro_batch) const;
  /// Ranks that were recorded so far; all others were put together.
  int recordings() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What of the device changes what a recipe allocates.
struct TuneDevice {
  std::int64_t gemm_workspace = 33554432;  ///< cuBLAS's by CUDABlas.cpp: 32 MiB on Hopper and later, else 8 MiB and 128 KiB
  std::int64_t memory = 0;                 ///< bytes, beyond which states in managed memory are fetched anew in each step; 0: no end
};

/// torchtune's fine-tuning recipes: full, LoRA and QLoRA.
StepProgram lower_torchtune(const Model& model, const Strategy& strategy, const TuneDevice& device = {}, bool every_micro_batch = false);

/// The same under deepspeed.initialize: ZeRO stages 0 to 3 with offload to the host.
StepProgram lower_hf_deepspeed(const Model& model, const Strategy& strategy, bool every_micro_batch = false);

/// llm-foundry's MPT under Composer's FSDP1.
StepProgram lower_llm_foundry(const Model& model, const Strategy& strategy, bool every_micro_batch = false);

/// MaxText's Llama layers on one rank, as XLA compiles them: FSDP, with or without replicas.
StepProgram lower_maxtext(const Model& model, const Strategy& strategy);

/// nanotron's Llama on one rank of pipeline rank `pipeline_rank`: torch DDP or ZeRO-1, tensor and pipeline parallel.
StepProgram lower_nanotron(const Model& model, const Strategy& strategy, int pipeline_rank);

/// Entries by which nanotron's host is ahead of the device (PlayMemoryOptions::launches_behind), all the time without a pipeline, while a
/// neighbour is late with one: every collective of PyTorch 2.1 marks what it uses by record_stream.
std::int64_t nanotron_launch_queue();

/// What of the device changes what Megatron's rank allocates.
struct MegatronDevice {
  bool multiplies_untransposed_fp8 = false;              ///< 8-bit products of any layout: Blackwell; Hopper's need transposed copies
  std::int64_t nvlink_domain = 8;                        ///< devices that NVLink joins
  AttentionLibrary attention = AttentionLibrary::cudnn;  ///< Transformer Engine's choice (get_attention_backend): cuDNN from Hopper on
};

/// Megatron-core's GPTModel with its local layers on one pipeline rank, with DDP buffers and either of its optimizers. Micro-batches that
/// only repeat the steady state of the schedule are left out of the program, unless `every_micro_batch`.
StepProgram lower_megatron(const Model& model, const Strategy& strategy, int pipeline_rank, bool every_micro_batch = false,
                           const MegatronDevice& device = {});

/// Megatron-DeepSpeed's GPT on one rank of DeepSpeed's pipeline engine, or, with ZeRO-2, of its plain one. Micro-batches of the steady
/// state beyond a few are left out, as above. To be played with DelayedFree::next_wait: the host hands out gathers without waiting for them.
StepProgram lower_megatron_deepspeed(const Model& model, const Strategy& strategy, int pipeline_rank);

/// Programs of a Megatron pipeline's ranks. What ranks with equal stages do is recorded once, and each rank's program is put together from
/// it (pipeline_passes.hpp), so that a long pipeline costs little more than a short one. `model` and `strategy` must outlive it.
class MegatronPipeline {
 public:
  MegatronPipeline(const Model& model, const Strategy& strategy, const MegatronDevice& device = {});
  ~MegatronPipeline();
  MegatronPipeline(const MegatronPipeline&) = delete;
  MegatronPipeline& operator=(const MegatronPipeline&) = delete;

  /// What lower_megatron gives for this rank, if possible in the memory of `spare`.
  StepProgram rank(int pipeline_rank, StepProgram spare = {});
  /// Ranks that were recorded so far; all others were put together.
  int recordings() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll::program

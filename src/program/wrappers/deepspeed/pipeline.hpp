/// What DeepSpeed's PipelineEngine steps: one of the optimizers' wrappers, of which it asks a reduction and a step at the end of its
/// schedule. Sources: deepspeed/runtime/pipe/engine.py, engine.py and utils.py (all_gather_dp_groups) of DeepSpeed 0.8.1; torch 1.13's
/// ProcessGroupNCCL::allgather, which gathers a list into one flat tensor of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "program/module.hpp"
#include "program/wrappers/deepspeed/deepspeed.hpp"

namespace plimsoll::program {

class PipelineOptimizer {
 public:
  virtual ~PipelineOptimizer() = default;
  /// Before and after every backward pass.
  virtual void before_backward() {}
  virtual void after_backward() {}
  /// Whether the last stage's loss is multiplied by a scale.
  virtual bool scales_loss() const { return false; }
  /// _exec_reduce_grads.
  virtual void reduce() = 0;
  /// _exec_optimizer_step; `communication` is the stream that still uses the gathered pieces when the host has gone on.
  virtual void step(StreamId communication) = 0;
};

/// BF16_Optimizer in bf16; in fp16 DeepSpeedZeroOptimizer's stage 1, or FP16_Optimizer without ZeRO.
std::unique_ptr<PipelineOptimizer> make_pipeline_optimizer(Tape& tape, const ParameterGroups& groups, const DeepSpeedSettings& settings);

/// The part of a flat group of weights that each rank steps.
struct WeightPiece {
  std::int64_t elements = 0, ranks = 1;
  DType type = DType::bf16;
};

/// all_gather_dp_groups: the host hands out one piece after another without waiting.
void gather_weights(Tape& tape, const WeightPiece& piece, StreamId communication);

}  // namespace plimsoll::program

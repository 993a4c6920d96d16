/// DeepSpeed's wrappers that keep whole weights and, but for BF16_Optimizer, whole states on every rank: FP16_Optimizer and
/// FP16_UnfusedOptimizer (ZeRO stage 0, both 16-bit types) and BF16_Optimizer (stage 1 with fp32 accumulation).
/// Sources: deepspeed/runtime/fp16/fused_optimizer.py, fp16/unfused_optimizer.py, bf16_optimizer.py, engine.py.
#pragma once

#include <memory>
#include <vector>

#include "program/wrappers/deepspeed/deepspeed.hpp"

namespace plimsoll::program {

/// FP16_Optimizer, which flattens weights, masters and gradients, and FP16_UnfusedOptimizer, which does not; without 16-bit weights the
/// optimizer alone.
class WholeStates final : public DeepSpeedOptimizer {
 public:
  WholeStates(Tape& tape, const std::vector<std::shared_ptr<Parameter>>& parameters, const DeepSpeedSettings& settings);

  void after_backward() override;
  void step() override;

 private:
  void flatten_weights();
  void make_masters();
  void initialize_states();
  void step_flat();
  void step_unfused();

  std::vector<std::shared_ptr<Parameter>> slots_;
  DType type_ = DType::bf16;
  bool flat_ = false;
  Tensor flat_weights_;
  std::vector<Tensor> masters_;  ///< one flat tensor, or one per parameter
  std::unique_ptr<Optimizer> optimizer_;
};

/// BF16_Optimizer: an fp32 buffer of all gradients, the masters and states of one piece per rank.
class Bf16Optimizer final : public DeepSpeedOptimizer {
 public:
  Bf16Optimizer(Tape& tape, Module& root, const DeepSpeedSettings& settings);

  void after_backward() override;
  void step() override;

 private:
  std::vector<std::shared_ptr<Parameter>> slots_;
  std::int64_t piece_ = 0;
  Tensor flat_weights_, master_, gradients_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace plimsoll::program

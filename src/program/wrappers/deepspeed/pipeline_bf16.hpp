/// DeepSpeed's BF16_Optimizer as the pipeline engine of DeepSpeed 0.8 uses it: two groups of parameters, 16-bit gradients that live on
/// beside their fp32 sums, weights that are gathered piece by piece through flat tensors of the process group's own.
/// Sources: deepspeed/runtime/bf16_optimizer.py, engine.py, utils.py (all_gather_dp_groups) of DeepSpeed 0.8.1; torch 1.13's
/// ProcessGroupNCCL::allgather, which gathers a list into one flat tensor of its own.
#pragma once

#include <memory>
#include <vector>

#include "program/wrappers/deepspeed/pipeline.hpp"

namespace plimsoll::program {

class PipelineBf16Optimizer final : public PipelineOptimizer {
 public:
  /// Weights are flattened group by group, their masters, sums of gradients and moments made.
  PipelineBf16Optimizer(Tape& tape, const ParameterGroups& groups, const DeepSpeedSettings& settings);

  /// clear_lp_grads: before every backward.
  void before_backward() override;
  /// update_hp_grads: 16-bit gradients are added to the sums and kept.
  void after_backward() override;
  /// _bf16_reduce_grads: each group's sums, in place: runs on LUMI leave no trace of 16-bit copies at their peaks.
  void reduce() override;
  void step(StreamId communication) override;

 private:
  struct Group {
    std::vector<std::shared_ptr<Parameter>> slots;
    Tensor weights, master, sums;
    std::int64_t piece = 0;  ///< elements of one rank
  };

  Group make_group(const std::vector<std::shared_ptr<Parameter>>& slots);

  Tape& tape_;
  DeepSpeedSettings settings_;
  std::vector<Group> groups_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace plimsoll::program

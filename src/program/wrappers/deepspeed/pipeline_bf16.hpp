/// DeepSpeed's BF16_Optimizer as the pipeline engine of DeepSpeed 0.8 uses it: two groups of parameters, 16-bit gradients that live on
/// beside their fp32 sums, weights that are gathered piece by piece through flat tensors of the process group's own.
/// Sources: deepspeed/runtime/bf16_optimizer.py, engine.py, utils.py (all_gather_dp_groups) of DeepSpeed 0.8.1; torch 1.13's
/// ProcessGroupNCCL::allgather, which gathers a list into one flat tensor of its own.
#pragma once

#include <memory>
#include <vector>

#include "program/module.hpp"
#include "program/wrappers/deepspeed/deepspeed.hpp"

namespace plimsoll::program {

using ParameterGroups = std::vector<std::vector<std::shared_ptr<Parameter>>>;

class PipelineBf16Optimizer {
 public:
  /// Weights are flattened group by group, their masters, sums of gradients and moments made.
  PipelineBf16Optimizer(Tape& tape, const ParameterGroups& groups, const DeepSpeedSettings& settings, bool clips);

  /// clear_lp_grads: before every backward.
  void clear_gradients();
  /// update_hp_grads: 16-bit gradients are added to the sums and kept.
  void accumulate();
  /// _bf16_reduce_grads: each group's sums, in place: runs on LUMI leave no trace of 16-bit copies at their peaks.
  void reduce();
  /// The step; `communication` is the stream that still uses the gathered pieces when the host has gone on.
  void step(StreamId communication);

 private:
  struct Group {
    std::vector<std::shared_ptr<Parameter>> slots;
    Tensor weights, master, sums;
    std::int64_t piece = 0;  ///< elements of one rank
  };

  Group make_group(const std::vector<std::shared_ptr<Parameter>>& slots);
  void gather_weights(const Group& group, StreamId communication);

  Tape& tape_;
  DeepSpeedSettings settings_;
  bool clips_;
  std::vector<Group> groups_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace plimsoll::program

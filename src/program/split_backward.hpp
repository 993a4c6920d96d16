/// Backward in two halves, after torch.distributed.pipelining (_backward.py, 2.15): first the gradient of a stage's input, later those of
/// its weights from what arrived at the operators that use them.
#pragma once

#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// A param_group: weights, the operators where they meet the way to the input, and the gradients that arrived there.
struct WeightGroup {
  std::vector<std::size_t> weights;  ///< indices
  std::vector<NodeRef> operators;
  std::vector<Gradients> gradients;  ///< by operator
};

struct InputBackward {
  Tensor gradient;  ///< of the input
  std::vector<WeightGroup> groups;
};

/// stage_backward_input: of `input` with respect to `root` and the gradient there (ones when undefined). The graph below stays alive with
/// what the operators of the groups saved.
InputBackward backward_to_input(Tape& tape, const Tensor& root, const Tensor& gradient, const Tensor& input,
                                const std::vector<Tensor>& weights);

/// stage_backward_weight: gradients become those of the weights, or are added to them.
void backward_to_weights(Tape& tape, std::vector<WeightGroup> groups, const std::vector<Tensor>& weights);

}  // namespace plimsoll::program

/// What encoder-decoders of transformers share: layers of several tensor arguments, the decoder's inputs, the loss.
#pragma once

#include <functional>
#include <vector>

#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

/// GradientCheckpointingLayer of several tensor arguments; those that need a gradient are arguments, not captured.
Tensor run_layer(Module& module, Tape& tape, const RunOptions& options, const std::vector<Tensor>& arguments,
                 const std::function<Tensor(const std::vector<Tensor>&)>& forward);
/// The same of several results.
std::vector<Tensor> run_layer(Module& module, Tape& tape, const RunOptions& options, const std::vector<Tensor>& arguments,
                              const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& forward);

/// CrossEntropyLoss()(logits.view(-1, classes), labels.view(-1)).
Tensor flat_cross_entropy(const Tensor& logits, const Tensor& labels);

/// shift_tokens_right(labels): the decoder's inputs.
Tensor shift_right(const Tensor& labels);

}  // namespace plimsoll::program

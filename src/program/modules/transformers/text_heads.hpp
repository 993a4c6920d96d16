/// Losses of the heads that classify texts or their tokens.
#pragma once

#include <vector>

#include "program/modules/network.hpp"

namespace plimsoll::program {

/// …ForQuestionAnswering.forward behind its `logits` [batch, length, 2]: the first and the last token of an answer, each a choice among all
/// tokens; `batch.labels` and its first condition are the right ones. `outputs` are the logits of the two.
Tensor answer_loss(const Tensor& logits, const Batch& batch, std::vector<Tensor>& outputs);

/// A rate of the dropout in a model's head: 0 where it has none, else any, as the mask and the kept elements are what it costs.
double head_dropout(const Model& model);

/// The loss of logits [..., labels]: cross entropy, or, of a single label, the squared error (transformers' problem_type regression).
Tensor label_loss(const Tensor& logits, const Tensor& labels);

}  // namespace plimsoll::program

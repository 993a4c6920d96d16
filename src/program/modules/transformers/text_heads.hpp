/// Heads of encoders that say something of every token.
#pragma once

#include <vector>

#include "program/modules/network.hpp"

namespace plimsoll::program {

/// …ForQuestionAnswering.forward behind its `logits` [batch, length, 2]: the first and the last token of an answer, each a choice among all
/// tokens; `batch.labels` and its first condition are the right ones. `outputs` are the logits of the two.
Tensor answer_loss(const Tensor& logits, const Batch& batch, std::vector<Tensor>& outputs);

}  // namespace plimsoll::program

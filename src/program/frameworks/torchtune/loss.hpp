/// torchtune's losses of a batch whose logits come whole or in parts.
#pragma once

#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// (labels != ignore_index).sum(): a scalar.
Tensor count_targets(const Tensor& labels);

/// torch.hstack((labels[..., 1:], ignored)): the labels of the next token.
Tensor shifted_labels(const Tensor& labels);

/// nn.CrossEntropyLoss of fp32 logits [batch, length, vocabulary].
Tensor whole_loss(const Tensor& logits, const Tensor& labels);

/// CEWithChunkedOutputLoss of 16-bit logits; `compiled`: widening and cross entropy are one graph of torch.compile.
Tensor chunked_output_loss(const std::vector<Tensor>& logits, const Tensor& labels, bool compiled);

}  // namespace plimsoll::program

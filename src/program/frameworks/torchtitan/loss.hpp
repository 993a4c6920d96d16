/// TorchTitan's losses (torchtitan/components/loss.py).
#pragma once

#include "program/modules/torchtitan/decoder.hpp"
#include "program/tape.hpp"
#include "program/wrappers/fsdp/fsdp2.hpp"

namespace plimsoll::program {

struct LossInputs {
  Tensor labels, positions;  ///< [batch, length]
  Tensor valid_tokens;       ///< scalar that the sum of the losses is divided by; undefined: the mean is taken
};

/// CrossEntropyLoss: logits in fp32, summed, divided. With tensor parallelism the logits are cut over the vocabulary.
Tensor cross_entropy_loss(const TensorParallel& group, const Tensor& logits, const LossInputs& inputs);

/// torch.compile of the same on whole logits: their maxima and sums are kept, and backward writes the gradient in the logits' type.
Tensor compiled_cross_entropy(const Tensor& logits, const LossInputs& inputs);

/// ChunkedLossWrapper: head, loss and their backward over pieces of the sequence; the result's backward starts with the gradient of
/// `hidden` that they gave.
Tensor chunked_loss(Tape& tape, TitanDecoder& decoder, Fsdp2& sharded, int chunks, const Tensor& hidden, const LossInputs& inputs);

}  // namespace plimsoll::program

/// What is cut over the vocabulary: the embedding and the losses. Tensors are [sequence, batch, …].
/// Sources: megatron/core/tensor_parallel/{layers,cross_entropy}.py, fusions/fused_cross_entropy.py of Megatron-core 0.16.1,
/// transformer_engine/pytorch/cross_entropy.py of Transformer Engine 2.11.
#pragma once

#include "program/modules/megatron/runtime.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// vocab_parallel_cross_entropy: logits [s, b, V/tp], target [s, b] → loss [s, b] in fp32.
Tensor vocab_parallel_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target);
/// The same with `cross_entropy_loss_fusion`, implementation native: three compiled functions.
Tensor fused_vocab_parallel_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target);
/// VocabParallelEmbedding before its reduction: indices [b, s] → [b, s, h].
Tensor vocab_parallel_embedding(MegatronRuntime& runtime, const Tensor& weight, const Tensor& indices);
/// te_parallel_cross_entropy: logits [s, b, V/tp] turn into their gradient in place, target [s, b] → loss [s, b] in fp32.
Tensor te_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target);

}  // namespace plimsoll::program

/// The attention operator within a compiled layer: the one that is traced is the one that PyTorch chooses for these tensors.
#pragma once

#include "program/ops/attention_kernels.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

/// [batch, heads, length, head_dim] each; the bias of the scores is undefined where there is none.
struct CompiledHeads {
  Tensor query, key, value, bias;
};

FlashOutputs compiled_attention_forward(const CompiledHeads& heads, const AttentionArguments& arguments);
/// `result` is the forward's, `gradient` its: of the heads' sizes, however they lie.
FlashGradients compiled_attention_backward(const CompiledHeads& heads, const Tensor& gradient, const Tensor& result,
                                           const AttentionArguments& arguments);

}  // namespace plimsoll::program

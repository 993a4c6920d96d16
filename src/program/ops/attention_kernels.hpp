/// Attention kernel by kernel: flash and cuDNN's below autograd, for callers that keep the tensors themselves (compiled graphs), and the
/// others by name.
#pragma once

#include "program/ops/ops.hpp"

namespace plimsoll::program {

struct FlashOutputs {
  Tensor output;       ///< [batch, heads, length, dim], in memory as the query
  Tensor log_sum_exp;  ///< [batch, heads, length] fp32
  Tensor rng_state, rng_offset;
};
struct FlexOutputs {
  Tensor output;       ///< as flash attention's
  Tensor log_sum_exp;  ///< [batch, heads, length] fp32
};
/// The generated kernel of flex_attention over a causal block mask; the maxima that it makes too live no longer than it.
FlexOutputs flex_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value);

/// aten::_scaled_dot_product_flash_attention of [batch, heads, length, dim] tensors.
FlashOutputs flash_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value, bool causal, double dropout);

struct FlashGradients {
  Tensor query, key, value;
};
/// The one kernel of flex_attention that makes all three, made in the order of the query's, the value's and the key's.
FlashGradients flex_attention_gradients(const Tensor& query, const Tensor& key, const Tensor& value);
/// Its backward; `gradient` [batch, length, heads, dim] is contiguous.
FlashGradients flash_attention_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& gradient, bool causal);

struct EfficientOutputs {
  Tensor output, log_sum_exp, seed, offset;
};
/// aten::_scaled_dot_product_efficient_attention of [batch, heads, length, dim] tensors without dropout, as training calls it.
EfficientOutputs efficient_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value);
/// Its backward with a gradient [batch, length, heads, dim] that is contiguous.
FlashGradients efficient_attention_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& gradient);

/// F.scaled_dot_product_attention where only the memory-efficient kernel is allowed (sdpa_kernel), causal.
Tensor efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value);

/// convert_boolean_attn_mask: zeros where `mask` is true, minus infinity elsewhere.
Tensor additive_attention_mask(Tape& tape, const Tensor& mask, DType type);

/// The kernels of aten::_scaled_dot_product_cudnn_attention of [batch, heads, length, dim] tensors.
FlashOutputs cudnn_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
                                     const AttentionArguments& arguments);
/// The output's gradient as those kernels take it: a copy that lies as the output does where its strides do not suit them.
Tensor cudnn_gradient(const Tensor& gradient, const Tensor& output);
/// Those of its backward.
FlashGradients cudnn_attention_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
                                        const AttentionArguments& arguments);
/// The operator itself.
Tensor cudnn_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const AttentionArguments& arguments);

/// aten::_scaled_dot_product_attention_math of tensors [..., length, dim]: products and a softmax, 16-bit inputs in fp32.
Tensor math_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const AttentionArguments& arguments);

struct VarlenOutputs {
  Tensor output;       ///< as the query
  Tensor log_sum_exp;  ///< [heads, tokens] fp32, without gradient
};
/// varlen_attention (ops.hpp) with the statistics that it keeps (AuxRequest(lse=True)).
VarlenOutputs varlen_attention_with_statistics(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t sequences);

}  // namespace plimsoll::program

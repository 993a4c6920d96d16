/// The operators of eager PyTorch, one function each: what it allocates and launches, what it saves, its backward.
/// Sources: tools/autograd/derivatives.yaml and aten/src/ATen/native/cuda of PyTorch 2.15.
#pragma once

#include <cstdint>
#include <vector>

#include "program/op.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

// ---- shape (ops_shape.cpp) ---------------------------------------------------------------------------------------------
/// x.view(sizes); one size may be -1. The layout must allow it.
Tensor view(const Tensor& x, Dims sizes);
/// x.reshape(sizes): a view where the layout allows, else a copy.
Tensor reshape(const Tensor& x, Dims sizes);
/// at::_unsafe_view: shares the storage, but is no view to autograd.
Tensor unsafe_view(const Tensor& x, Dims sizes);
Tensor transpose(const Tensor& x, int first, int second);
Tensor permute(const Tensor& x, const Dims& order);
Tensor unsqueeze(const Tensor& x, int dimension);
Tensor squeeze(const Tensor& x, int dimension);
Tensor expand(const Tensor& x, Dims sizes);  ///< -1 keeps a size
Tensor slice(const Tensor& x, int dimension, std::int64_t start, std::int64_t end);
Tensor every_second(const Tensor& x, std::int64_t start);  ///< x[..., start::2]
Tensor select(const Tensor& x, int dimension, std::int64_t index = 0);
Tensor alias(const Tensor& x);
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dimension);
std::vector<Tensor> chunk(const Tensor& x, int chunks, int dimension);
std::vector<Tensor> unbind(const Tensor& x, int dimension);
Tensor stack(const std::vector<Tensor>& tensors, int dimension);
Tensor cat(const std::vector<Tensor>& tensors, int dimension);
/// A new tensor into whose halves of the last dimension `left` and `right` are copied, one after the other (CopySlices, not cat).
Tensor copied_side_by_side(const Tensor& left, const Tensor& right);
Tensor clone(const Tensor& x);
Tensor contiguous(const Tensor& x);
/// Constant padding of the last dimension (F.pad).
Tensor pad_last(const Tensor& x, std::int64_t left, std::int64_t right);

// ---- elementwise (ops_elementwise.cpp) ---------------------------------------------------------------------------------
/// x.to(type): x itself when it has that type.
Tensor to(const Tensor& x, DType type);
/// x.to(type, memory_format=torch.contiguous_format) of another type.
Tensor to_row_major(const Tensor& x, DType type);
Tensor add(const Tensor& a, const Tensor& b);
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor divide(const Tensor& a, const Tensor& b);
/// target /= other: a tensor on target's storage, which takes its place.
Tensor divide_in_place(const Tensor& target, const Tensor& other);
Tensor add_scalar(const Tensor& x);
Tensor multiply_scalar(const Tensor& x);
Tensor divide_scalar(const Tensor& x);
Tensor negate(const Tensor& x);
Tensor power(const Tensor& x, int exponent = 2);
Tensor rsqrt(const Tensor& x);
Tensor cosine(const Tensor& x);  ///< for rotary tables; they take no gradient
Tensor sine(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor relu_into(const Tensor& x);  ///< relu_: the result has x's storage
Tensor silu(const Tensor& x);
Tensor gelu(const Tensor& x);          ///< F.gelu
Tensor gelu_by_tanh(const Tensor& x);  ///< F.gelu(approximate="tanh")
/// F.dropout in training: native_dropout with its mask; x itself when p is 0 and `training` does not matter.
Tensor dropout(const Tensor& x, double p);
/// torch.where(condition, x, number).
Tensor where(const Tensor& condition, const Tensor& x);
/// torch.ones, torch.full: a kernel, where zeros are set by the driver.
Tensor filled(Tape& tape, const Dims& sizes, DType type);
/// x.masked_fill(mask, value).
Tensor masked_fill(const Tensor& x, const Tensor& mask);
/// x.clamp(least, most) of numbers.
Tensor clamp(const Tensor& x);
/// x.clamp(max=number), x.clamp(min=number).
Tensor clamp_one_side(const Tensor& x);
/// x.clamp_(least, most): the result has x's storage.
Tensor clamp_into(const Tensor& x);
/// a += b as autograd sees it: the result has a's storage.
Tensor add_into(const Tensor& a, const Tensor& b);
/// x /= scalar, likewise.
Tensor divide_scalar_into(const Tensor& x);
/// target += other, outside of autograd.
void add_in_place(const Tensor& target, const Tensor& other);

// ---- reductions and normalizations (ops_reduction.cpp) ------------------------------------------------------------------
Tensor sum(const Tensor& x, const std::vector<int>& dimensions, bool keep);
Tensor sum_to(const Tensor& x, const Dims& sizes);
Tensor mean(const Tensor& x, int dimension, bool keep);
/// F.softmax(x, dim=-1[, dtype]); `type` differs from x's when the kernel converts on its way.
Tensor softmax(const Tensor& x, DType type);
Tensor log_softmax(const Tensor& x, DType type);
/// aten::_safe_softmax over the last dimension: zeros in rows that are all minus infinity.
Tensor safe_softmax(const Tensor& x);
/// F.layer_norm; weight and bias may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias);
/// torch._weight_norm(v, g, dim) over all but the first or the last dimension (aten::_weight_norm_interface).
Tensor weight_norm(const Tensor& v, const Tensor& g);
/// F.rms_norm (aten::_fused_rms_norm).
Tensor rms_norm(const Tensor& x, const Tensor& weight);

// ---- products (ops_matmul.cpp) ------------------------------------------------------------------------------------------
/// F.linear(x, weight[, bias]) with autocast.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// torch.addmm(bias, x, weight), weight [in, out]: GPT-2's Conv1D.
Tensor addmm(const Tensor& bias, const Tensor& x, const Tensor& weight);
Tensor mm(const Tensor& a, const Tensor& b);
Tensor bmm(const Tensor& a, const Tensor& b);
/// torch.baddbmm(x, a, b, alpha=…) of operands of one type; `scaled`: alpha is not 1, and the factors' gradients are multiplied by it.
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, bool scaled);
/// torch.matmul of tensors of equal rank ≥ 3, batched.
Tensor matmul(const Tensor& a, const Tensor& b);

// ---- images (convolution.cpp, image.cpp) ---------------------------------------------------------------------------------
struct ConvolutionArguments {
  std::int64_t stride = 1, padding = 0, groups = 1;
};
/// F.conv2d of x [batch, channels, height, width], weight [out, channels / groups, kernel, kernel]: cuDNN's where the tape has it; else
/// images one by one, unfolded into columns and multiplied (slow_conv2d). A kernel of its own where every channel is a group
/// (conv_depthwise2d).
Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionArguments& arguments);
/// F.batch_norm in training; running statistics are updated in place by the caller. Weight and bias may be undefined. `has_statistics`: there are
/// running ones; else ATen inverts the deviation in a kernel of its own (batch_norm_calc_invstd).
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, bool has_statistics = true);
struct PoolArguments {
  std::int64_t kernel = 1, stride = 1, padding = 0;
};
Tensor max_pool(const Tensor& x, const PoolArguments& arguments);
Tensor average_pool(const Tensor& x, const PoolArguments& arguments);
/// adaptive_avg_pool2d to 1 x 1: the mean over both dimensions of a map, kept.
Tensor global_average_pool(const Tensor& x);

// ---- attention (ops_attention.cpp) --------------------------------------------------------------------------------------
struct AttentionArguments {
  bool causal = false;
  double dropout = 0;
  bool enable_gqa = false;
};
/// F.scaled_dot_product_attention on [batch, heads, length, head_dim], by the kernels that PyTorch chooses (attention_choice.hpp).
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                    const AttentionArguments& arguments);

struct FlashAttnArguments {
  bool causal = true;
  double dropout = 0;
  std::int64_t window = 0;  ///< keys that a query sees at most; 0: all
  AttentionLibrary library = AttentionLibrary::flash2;
  std::int64_t sequences = 0;  ///< packed in the one row: flash_attn_varlen_func of generation 2; 0: every row is one
};
/// flash_attn_func of flash-attention 2 (flash_attn/flash_attn_interface.py, FlashAttnFunc), 3 (hopper/flash_attn_interface.py) or 4
/// (flash_attn/cute/interface.py), or Composable Kernel's for the first, on [batch, length, heads, head_dim] in 16 bits; keys may have
/// fewer heads. Throws Error (refused): dropout where the library has none.
Tensor flash_attn(const Tensor& query, const Tensor& key, const Tensor& value, const FlashAttnArguments& arguments);

/// Compiled flex_attention over a block mask, [batch, heads, length, head_dim]; keys may have fewer heads, values another width.
Tensor flex_attention(const Tensor& query, const Tensor& key, const Tensor& value);

/// torch.nn.attention.varlen.varlen_attn, causal: query [tokens, heads, head_dim] of `sequences` packed sequences.
Tensor varlen_attention(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t sequences);

/// Causal ring attention of the first of `ranks` context-parallel ranks, [batch, heads, length / ranks, head_dim].
Tensor ring_attention(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t ranks);

// ---- tables and losses (ops_index.cpp, ops_loss.cpp) --------------------------------------------------------------------
Tensor embedding(const Tensor& weight, const Tensor& indices);
/// torch.arange(length): one kernel.
Tensor arange(Tape& tape, std::int64_t length, DType type = DType::int64);
/// x[..., [i], …]: advanced indexing of one dimension with one index; a copy of size 1 there.
Tensor index_one(const Tensor& x, int dimension);
/// torch.cumsum(x, -1, dtype=type) over the last dimension; takes no part in autograd.
Tensor cumulative_sum(const Tensor& x, DType type);
/// F.cross_entropy(logits [n, classes], target [n]), mean reduction: a scalar.
Tensor cross_entropy(const Tensor& logits, const Tensor& target);
/// F.mse_loss(x, target), mean reduction: a scalar. The target takes no gradient.
Tensor mse_loss(const Tensor& x, const Tensor& target);

/// table[rows]: advanced indexing of the first dimension by a vector; the table takes no gradient.
Tensor table_rows(const Tensor& table, const Tensor& rows);
/// torch.gather(table, …) of whole rows of `table` [rows, width], one per element of `indices`: [*indices, width], no gradient.
Tensor gather_rows(const Tensor& table, const Tensor& indices);

// ---- complex numbers (ops_complex.cpp) ----------------------------------------------------------------------------------
Tensor view_as_complex(const Tensor& x);
Tensor view_as_real(const Tensor& x);
Tensor multiply_complex(const Tensor& a, const Tensor& b);

// ---- routing (ops_routing.cpp) ------------------------------------------------------------------------------------------
struct TopK {
  Tensor values, indices;
};
/// torch.topk over the last dimension.
TopK top_k(const Tensor& x, std::int64_t k);
struct SortedIntegers {
  Tensor values, order;
};
/// torch.sort of 64-bit integers, one dimension.
SortedIntegers sort_integers(const Tensor& x);
/// x[indices]: rows of x.
Tensor index_rows(const Tensor& x, const Tensor& indices);
/// x.index_select(0, indices): its backward adds rows into zeros (index_add_).
Tensor index_select(const Tensor& x, const Tensor& indices);
/// y[indices] = x of a new tensor y as large as x, `indices` a permutation of its rows.
Tensor place_rows(const Tensor& x, const Tensor& indices);
/// x.scatter_add(0, indices of whole rows, rows) by the deterministic algorithm (indices sorted, then summed).
Tensor scatter_add_rows(const Tensor& x, const Tensor& indices, const Tensor& rows);
/// x.repeat_interleave(times, output_size=total) of one dimension.
Tensor repeat_interleave(const Tensor& x, const Tensor& times, std::int64_t total);
/// mask.sum(dim) in 64-bit integers.
Tensor count(const Tensor& mask, const std::vector<bool>& reduced);
/// x.gather(-1, indices).
Tensor gather_last(const Tensor& x, const Tensor& indices);
/// x.scatter_(-1, indices, values) into an x that needs no gradient: the result has x's storage.
Tensor scattered_last(const Tensor& x, const Tensor& indices, const Tensor& values);
/// torch.histc of integers.
Tensor histogram(const Tensor& x, std::int64_t bins);
/// F.grouped_mm(x, weight.transpose(-2, -1), offs=offsets): rows of x [rows, in] in groups, each with its weight [groups, out, in].
Tensor grouped_product(const Tensor& x, const Tensor& weight, const Tensor& offsets);

// ---- autocast (autocast.cpp) --------------------------------------------------------------------------------------------
/// x as an operator of autocast's lower-precision list sees it.
Tensor autocast_low(const Tensor& x);
/// x as an operator of autocast's fp32 list sees it.
Tensor autocast_fp32(const Tensor& x);

}  // namespace plimsoll::program

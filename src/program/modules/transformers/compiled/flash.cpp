// Fused attention in a compiled layer, cuDNN's or flash: operators that allocate by themselves.
#include <utility>

#include "program/modules/transformers/compiled/attention.hpp"
#include "program/modules/transformers/compiled/layer.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

using inductor::Value;

namespace {

/// A projection's result, or any packed tensor of that size, as heads: [batch, heads, length, head_dim] over [batch, length, heads,
/// head_dim].
Tensor as_heads(const Tensor& x, const CompiledShape& s, std::int64_t heads) {
  return x.tape().view(x, {s.batch, heads, s.length, s.head_dim}, {s.length * heads * s.head_dim, s.head_dim, heads * s.head_dim, 1});
}

/// Queries, keys and values from the first of `reads`: three of them, of which the last may hold the others too, or one that holds all side
/// by side.
CompiledHeads heads_of(const std::vector<Tensor>& reads, const CompiledShape& s) {
  const std::int64_t width = s.q_width() + 2 * s.kv_width();
  const auto part = [&](const Tensor& all, std::int64_t heads) {
    return all.tape().view(all, {s.batch, heads, s.length, s.head_dim}, {s.length * width, s.head_dim, width, 1});
  };
  if (!s.rotary && s.fused_qkv) return {part(reads[0], s.heads), part(reads[0], s.kv_heads), part(reads[0], s.kv_heads), {}};
  const Tensor value = s.fused_qkv ? part(reads[2], s.kv_heads) : as_heads(reads[2], s, s.kv_heads);
  return {as_heads(reads[0], s, s.heads), as_heads(reads[1], s, s.kv_heads), value, {}};
}

AttentionArguments arguments_of(const CompiledShape& s) {
  return {.causal = s.causal, .dropout = s.attention_dropout, .enable_gqa = s.kv_heads < s.heads};
}

}  // namespace

/// Queries, keys and values as attention reads them: one product's result, or three tensors.
CompiledLayer::Values CompiledLayer::attention_inputs() const {
  if (s_.fused_qkv && !s_.rotary) return {v_[kProjections]};
  return {v_[kQuery], v_[kKey], v_[s_.fused_qkv ? kProjections : kValue]};
}

std::vector<Value> CompiledLayer::flash(const Values& reads) {
  std::vector<inductor::Graph::Output> outputs{{{s_.batch, s_.heads, s_.length, s_.head_dim}, s_.low}};
  if (!forward_only_) {
    outputs.push_back({{s_.batch, s_.heads, s_.length}, DType::fp32});
    outputs.push_back({{2}, DType::int64});
    outputs.push_back({{1}, DType::int64});
  }
  const CompiledShape shape = s_;
  const std::vector<Value> results = g_.call(reads, outputs, [shape](const std::vector<Tensor>& tensors) {
    FlashOutputs all = compiled_attention_forward(heads_of(tensors, shape), arguments_of(shape));
    return std::vector<Tensor>{std::move(all.output), std::move(all.log_sum_exp), std::move(all.rng_state), std::move(all.rng_offset)};
  });
  for (std::size_t i = results.size(); i < 5; ++i) g_.skip_name();  // the rest of what the operator returns
  for (std::size_t i = 0; i < results.size(); ++i) v_[kAttended + i] = results[i];
  return results;
}

/// The gradients of queries, keys and values from that of what attention gave.
std::vector<Value> CompiledLayer::flash_backward(Value gradient) {
  if (s_.masked) return masked_flash_backward(gradient);
  const Dims wide_heads{s_.batch, s_.heads, s_.length, s_.head_dim}, narrow_heads{s_.batch, s_.kv_heads, s_.length, s_.head_dim};
  const CompiledShape shape = s_;
  if (s_.scaled_queries && s_.checkpointed) {  // for the backward once more, by the kernel of the forward
    const Value again = scale_queries();
    g_.fuse({v_[kQuery], again});
    v_[kQuery] = again;
  }
  Values reads = attention_inputs();
  const std::size_t position = reads.size();
  for (const Value value : {gradient, v_[kAttended], v_[kLogSumExp], v_[kRngState], v_[kRngOffset]}) reads.push_back(value);
  return g_.call(reads, {{wide_heads, s_.low}, {narrow_heads, s_.low}, {narrow_heads, s_.low}},
                 [shape, position](const std::vector<Tensor>& tensors) {
                   FlashGradients all = compiled_attention_backward(heads_of(tensors, shape), as_heads(tensors[position], shape, shape.heads),
                                                                    as_heads(tensors[position + 1], shape, shape.heads), arguments_of(shape));
                   return std::vector<Tensor>{std::move(all.query), std::move(all.key), std::move(all.value)};
                 });
}

}  // namespace plimsoll::program

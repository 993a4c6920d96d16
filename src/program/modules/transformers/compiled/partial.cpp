// Compiled layers that turn a part of each head and join it with the rest (stablelm, phi, gpt_neox; glm, whose pairs are neighbours):
// queries and keys come out with heads before positions, so that attention's result is copied for the product behind it.
#include "program/modules/transformers/compiled/layer.hpp"

namespace plimsoll::program {

using inductor::Value;

/// Under autocast tables are fp32 and so is what was turned; one kernel turns and casts.
void CompiledLayer::join_rotations() {
  const Dims query{s_.batch, s_.heads, s_.length, s_.head_dim}, key{s_.batch, s_.kv_heads, s_.length, s_.head_dim};
  turned_query_ = g_.pointwise(query, DType::fp32, {v_[s_.fused_qkv ? kProjections : kRawQuery], v_[kCosine], v_[kSine]});
  turned_key_ = g_.pointwise(key, DType::fp32, {v_[s_.fused_qkv ? kProjections : kRawKey], v_[kCosine], v_[kSine]});
  const auto cast_query = [&] { v_[kQuery] = g_.pointwise(query, s_.low, {turned_query_}); };
  const auto cast_key = [&] { v_[kKey] = g_.pointwise(key, s_.low, {turned_key_}); };
  const bool query_first = s_.checkpointed;
  if (query_first) cast_query();
  cast_key();
  if (!query_first) cast_query();
  if (s_.heads != s_.kv_heads) {
    g_.fuse({turned_query_, v_[kQuery]});
    g_.fuse({turned_key_, v_[kKey]});
    return;
  }
  // The same loops: one kernel turns both and casts the first; only where the casts are repeated does it cast both.
  g_.fuse({turned_query_, turned_key_, query_first ? v_[kQuery] : v_[kKey]});
  if (s_.checkpointed && !forward_only_) g_.fuse({turned_query_, v_[kKey]});
}

/// A checkpointed layer's backward casts queries and keys once more, by the kernels that turned them.
void CompiledLayer::cast_rotations_again() {
  const Value query = g_.pointwise({s_.batch, s_.heads, s_.length, s_.head_dim}, s_.low, {turned_query_});
  const Value key = g_.pointwise({s_.batch, s_.kv_heads, s_.length, s_.head_dim}, s_.low, {turned_key_});
  g_.fuse({turned_query_, query});
  g_.fuse({turned_key_, key});
  if (s_.heads == s_.kv_heads) g_.order({turned_query_, turned_key_, v_[kQuery], query, v_[kKey], key});
  v_[kQuery] = query;
  v_[kKey] = key;
}

/// The gradient of the part that was turned, where it is a value of its own: under autocast, and where neighbours are turned.
Value CompiledLayer::unturn_part(Value turned, std::int64_t heads) {
  if (!s_.casts() && !s_.neighbours) return {};
  const std::int64_t width = s_.casts() && s_.neighbours ? s_.rotary_dim : s_.head_dim;
  return g_.pointwise({s_.batch, heads, s_.length, width}, s_.low, {turned, v_[kCosine], v_[kSine]});
}

/// The gradient of a projection's result.
Value CompiledLayer::unturn(Value turned, Value part, std::int64_t heads) {
  const Dims sizes{s_.batch, s_.length, heads, s_.head_dim};
  if (!part.defined()) return g_.pointwise(sizes, s_.low, {turned, v_[kCosine], v_[kSine]});
  if (s_.casts()) {
    const Value result = g_.pointwise(sizes, s_.low, {turned, part});
    if (!s_.neighbours) g_.fuse({part, result});
    return result;
  }
  // Computed again, queries and keys lie as their products do, and so do their gradients.
  return g_.pointwise(sizes, s_.low, {part}, s_.checkpointed ? Values{part} : Values{});
}

/// From attention's gradients to those that the three projections give to the norm's output.
CompiledLayer::Values CompiledLayer::partial_rotary_backward(const Values& flash) {
  const Value key_part = unturn_part(flash[1], s_.kv_heads), query_part = unturn_part(flash[0], s_.heads);
  const Value from_value = linear_backward(kV, flash[2], v_[kNormed], s_.hidden, s_.kv_width());
  const Value key = unturn(flash[1], key_part, s_.kv_heads);
  const Value from_key = linear_backward(kK, key, v_[kNormed], s_.hidden, s_.kv_width());
  const Value query = unturn(flash[0], query_part, s_.heads);
  const Value from_query = linear_backward(kQ, query, v_[kNormed], s_.hidden, s_.q_width());
  if (s_.heads == s_.kv_heads) g_.fuse({key, query});
  return {from_value, from_key, from_query};
}

}  // namespace plimsoll::program

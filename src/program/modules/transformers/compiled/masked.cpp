// Attention with a mask in a compiled layer, as that of a sliding window shorter than the sequence: memory-efficient attention with a bias,
// keys and values repeated for their queries.
#include "program/modules/transformers/compiled/attention.hpp"
#include "program/modules/transformers/compiled/layer.hpp"

namespace plimsoll::program {

using inductor::Value;

namespace {

/// [batch, heads, length, head_dim] of a packed tensor; all kernels allocate the same however they lie.
Tensor heads_view(const Tensor& x, const CompiledShape& s) {
  return x.tape().view(x, {s.batch, s.heads, s.length, s.head_dim}, {s.length * s.q_width(), s.head_dim, s.q_width(), 1});
}

AttentionArguments arguments_of(const CompiledShape& s) { return {.causal = false, .dropout = s.attention_dropout, .enable_gqa = false}; }

/// Queries, keys, values and the bias of the scores, the first of `reads`.
CompiledHeads masked_heads(const std::vector<Tensor>& reads, const CompiledShape& s) {
  if (s.fused_qkv) {
    const std::int64_t width = 3 * s.q_width();
    const Tensor part = reads[0].tape().view(reads[0], {s.batch, s.heads, s.length, s.head_dim}, {s.length * width, s.head_dim, width, 1});
    return {part, part, part, reads[1]};
  }
  return {heads_view(reads[0], s), heads_view(reads[1], s), heads_view(reads[2], s), reads[3]};
}

}  // namespace

/// Queries and keys turned and values, repeated where several queries share them, in the order in which they are traced; then the mask as
/// what is added to the scores.
void CompiledLayer::prepare_masked() {
  const Dims sizes{s_.batch, s_.heads, s_.length, s_.head_dim};
  const auto query = [&] {
    rotate(kRawQuery, kQueryScale, kQNorm, norm_heads(kRawQuery, kQueryScale, kQNorm, s_.heads), kQuery, s_.heads);
  };
  const auto key = [&] { rotate(kRawKey, kKeyScale, kKNorm, norm_heads(kRawKey, kKeyScale, kKNorm, s_.kv_heads), kKey, s_.heads); };
  const auto value = [&] {
    if (!repeats()) return;
    raw_value_ = v_[kValue];
    v_[kValue] = g_.pointwise(sizes, s_.low, {raw_value_});
  };
  if (!s_.rotary) {
    // as they come from their product
  } else if (forward_only_ || !s_.casts()) {
    query();
    key();
    value();
  } else if (s_.checkpointed) {
    key();
    query();
    value();
  } else {
    value();
    key();
    query();
  }
  fuse_rotations(v_[kQuery], v_[kKey]);
  if (v_[kScoreBias].defined()) return;  // of the layer before
  v_[kScoreBias] = g_.pointwise({s_.batch, 1, s_.length, s_.length}, s_.low, {v_[kVisible]});
}

void CompiledLayer::attend_masked() {
  prepare_masked();
  std::vector<inductor::Graph::Output> outputs{{{s_.batch, s_.heads, s_.length, s_.head_dim}, s_.low}};
  if (!forward_only_) {
    outputs.push_back({{s_.batch, s_.heads, round_up(s_.length, 32)}, DType::fp32});
    outputs.push_back({{1}, DType::int64});
    outputs.push_back({{1}, DType::int64});
  }
  const CompiledShape shape = s_;
  const Values reads = joined(attention_inputs(), {v_[kScoreBias]});
  const std::vector<Value> results = g_.call(reads, outputs, [shape](const std::vector<Tensor>& tensors) {
    FlashOutputs all = compiled_attention_forward(masked_heads(tensors, shape), arguments_of(shape));
    return std::vector<Tensor>{std::move(all.output), std::move(all.log_sum_exp), std::move(all.rng_state), std::move(all.rng_offset)};
  });
  for (std::size_t i = results.size(); i < 4; ++i) g_.skip_name();
  for (std::size_t i = 0; i < results.size(); ++i) v_[kAttended + i] = results[i];
}

/// The gradients of queries, keys and values, each with as many heads as queries have. A checkpointed layer repeats values once more, by
/// the same kernel, and writes the bias for every head.
std::vector<Value> CompiledLayer::masked_flash_backward(Value gradient) {
  const Dims sizes{s_.batch, s_.heads, s_.length, s_.head_dim};
  if (s_.checkpointed) {
    if (repeats()) {
      const Value again = g_.pointwise(sizes, s_.low, {raw_value_});
      g_.fuse({v_[kValue], again});
      v_[kValue] = again;
    }
    if (!s_.in_model || cut_.graphs != nullptr)
      v_[kScoreBias] = g_.pointwise({s_.batch, s_.heads, s_.length, s_.length}, s_.low, {v_[kVisible]});
  }
  const CompiledShape shape = s_;
  Values reads = joined(attention_inputs(), {v_[kScoreBias]});
  const std::size_t position = reads.size();
  for (const Value value : {gradient, v_[kAttended], v_[kLogSumExp], v_[kRngState], v_[kRngOffset]}) reads.push_back(value);
  return g_.call(reads, {{sizes, s_.low}, {sizes, s_.low}, {sizes, s_.low}}, [shape, position](const std::vector<Tensor>& tensors) {
    FlashGradients all = compiled_attention_backward(masked_heads(tensors, shape), heads_view(tensors[position], shape),
                                                     heads_view(tensors[position + 1], shape), arguments_of(shape));
    return std::vector<Tensor>{std::move(all.query), std::move(all.key), std::move(all.value)};
  });
}

/// From attention's gradients to those that the three projections give to the norm's output: summed over the queries that share keys and
/// values. Keys read the sum twice, with the cosine and, from the other half, with the sine. Of five on the sum reads too much to be
/// written twice (config.realize_reads_threshold) and is a buffer, of eight on by a kernel that sums (config.unroll_reductions_threshold);
/// below that the part with the sine is: of four by a kernel of its own, of three within the other's, of two it is written out.
CompiledLayer::Values CompiledLayer::masked_projections_backward(const Values& gradients) {
  const Dims turned{s_.batch, s_.kv_heads, s_.length, s_.head_dim}, narrow{s_.batch, s_.length, s_.kv_heads, s_.head_dim};
  constexpr std::int64_t kReductions = 8;
  const std::int64_t sharing = s_.heads / s_.kv_heads;
  Value sine_part, value = gradients[2];
  Values for_key{gradients[1], v_[kCosine], v_[kSine]};
  const auto sum = [&](const Dims& sizes, DType type, Value gradient) {
    return sharing < kReductions ? g_.pointwise(sizes, type, {gradient}) : g_.reduction(sizes, type, {gradient});
  };
  if (sharing > 4) for_key[0] = sum(turned, s_.casts() ? DType::fp32 : s_.low, gradients[1]);
  if (sharing == 3 || sharing == 4) {
    sine_part = g_.pointwise(turned, s_.low, {gradients[1], v_[kSine]});
    for_key.push_back(sine_part);
  }
  if (repeats()) value = sum(narrow, s_.low, gradients[2]);
  const auto unturn_key = [&] {
    const Value key = s_.head_norms ? heads_backward(kRawKey, kKeyScale, kKNorm, for_key[0], s_.kv_heads)
                                    : hand_back(kRawKey, g_.pointwise(narrow, s_.low, for_key), s_.kv_heads > 1);
    if (sharing == 3) g_.fuse({sine_part, key});
    return key;
  };
  const auto unturn_query = [&] { return heads_backward(kRawQuery, kQueryScale, kQNorm, gradients[0], s_.heads); };
  return projections_backward(value, unturn_query, unturn_key);
}

}  // namespace plimsoll::program

// Attention with a mask in a compiled layer, as that of a sliding window shorter than the sequence: memory-efficient attention with a bias,
// keys and values repeated for their queries.
#include "program/modules/transformers/compiled/layer.hpp"
#include "program/ops/attention_kernels.hpp"

namespace plimsoll::program {

using inductor::Value;

namespace {

/// [batch, heads, length, head_dim] of a packed tensor; efficient attention allocates the same however they lie.
Tensor heads_view(const Tensor& x, const CompiledShape& s) {
  return x.tape().view(x, {s.batch, s.heads, s.length, s.head_dim}, {s.length * s.q_width(), s.head_dim, s.q_width(), 1});
}

}  // namespace

/// Queries and keys turned and values, repeated where several queries share them, in the order in which they are traced; then the mask as
/// what is added to the scores.
void CompiledLayer::prepare_masked() {
  const Dims sizes{s_.batch, s_.heads, s_.length, s_.head_dim};
  const auto query = [&] { v_[kQuery] = g_.pointwise(sizes, s_.low, {v_[kRawQuery], v_[kCosine], v_[kSine]}); };
  const auto key = [&] { v_[kKey] = g_.pointwise(sizes, s_.low, {v_[kRawKey], v_[kCosine], v_[kSine]}); };
  const auto value = [&] {
    if (!repeats()) return;
    raw_value_ = v_[kValue];
    v_[kValue] = g_.pointwise(sizes, s_.low, {raw_value_});
  };
  if (forward_only_ || !s_.casts()) {
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
  const Values reads{v_[kQuery], v_[kKey], v_[kValue], v_[kScoreBias]};
  const std::vector<Value> results = g_.call(reads, outputs, [shape](const std::vector<Tensor>& tensors) {
    EfficientOutputs all =
        efficient_attention_forward(heads_view(tensors[0], shape), heads_view(tensors[1], shape), heads_view(tensors[2], shape));
    return std::vector<Tensor>{std::move(all.output), std::move(all.log_sum_exp), std::move(all.seed), std::move(all.offset)};
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
    v_[kScoreBias] = g_.pointwise({s_.batch, s_.heads, s_.length, s_.length}, s_.low, {v_[kVisible]});
  }
  const CompiledShape shape = s_;
  return g_.call({v_[kQuery], v_[kKey], v_[kValue], gradient, v_[kScoreBias], v_[kAttended], v_[kLogSumExp], v_[kRngState], v_[kRngOffset]},
                 {{sizes, s_.low}, {sizes, s_.low}, {sizes, s_.low}}, [shape](const std::vector<Tensor>& tensors) {
                   FlashGradients all = efficient_attention_backward(heads_view(tensors[0], shape), heads_view(tensors[1], shape),
                                                                     heads_view(tensors[2], shape), heads_view(tensors[3], shape));
                   return std::vector<Tensor>{std::move(all.query), std::move(all.key), std::move(all.value)};
                 });
}

/// From attention's gradients to those that the three projections give to the norm's output: summed over the queries that share keys and
/// values. Keys read the sum twice, with the cosine and, from the other half, with the sine. Of five on the sum reads too much to be
/// written twice (config.realize_reads_threshold) and is a buffer; below that the part with the sine is: of four by a kernel of its own, of
/// three within the other's, of two it is written out.
CompiledLayer::Values CompiledLayer::masked_projections_backward(const Values& gradients) {
  const Dims turned{s_.batch, s_.kv_heads, s_.length, s_.head_dim}, narrow{s_.batch, s_.length, s_.kv_heads, s_.head_dim};
  const std::int64_t sharing = s_.heads / s_.kv_heads;
  Value sine_part, value = gradients[2];
  Values for_key{gradients[1], v_[kCosine], v_[kSine]};
  if (sharing > 4) for_key[0] = g_.pointwise(turned, s_.casts() ? DType::fp32 : s_.low, {gradients[1]});
  if (sharing == 3 || sharing == 4) {
    sine_part = g_.pointwise(turned, s_.low, {gradients[1], v_[kSine]});
    for_key.push_back(sine_part);
  }
  if (repeats()) value = g_.pointwise(narrow, s_.low, {gradients[2]});
  const Value from_value = linear_backward(kV, value, v_[kNormed], s_.hidden, s_.kv_width());
  const Value key = g_.pointwise(narrow, s_.low, for_key);
  if (sharing == 3) g_.fuse({sine_part, key});
  const Value from_key = linear_backward(kK, key, v_[kNormed], s_.hidden, s_.kv_width());
  const Value query = g_.pointwise({s_.batch, s_.length, s_.heads, s_.head_dim}, s_.low, {gradients[0], v_[kCosine], v_[kSine]});
  const Value from_query = linear_backward(kQ, query, v_[kNormed], s_.hidden, s_.q_width());
  fuse_rotations(query, key);
  return {from_value, from_key, from_query};
}

}  // namespace plimsoll::program

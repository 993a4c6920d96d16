#include "program/modules/transformers/compiled_layer.hpp"

#include <utility>

#include "program/modules/inductor.hpp"
#include "program/ops/attention_kernels.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

using inductor::Value;

namespace {

/// A projection's result, or any packed tensor of that size, as heads: [batch, heads, length, head_dim] over [batch, length, heads,
/// head_dim].
Tensor as_heads(const Tensor& x, const CompiledShape& s, std::int64_t heads) {
  return x.tape().view(x, {s.batch, heads, s.length, s.head_dim}, {s.length * heads * s.head_dim, s.head_dim, heads * s.head_dim, 1});
}

/// [batch, length, heads, head_dim] over [batch, heads, length, head_dim].
Tensor heads_before_positions(const Tensor& x, const CompiledShape& s) {
  const std::int64_t width = s.length * s.head_dim;
  return x.tape().view(x, {s.batch, s.length, s.heads, s.head_dim}, {s.heads * width, s.head_dim, width, 1});
}

struct Heads {
  Tensor query, key, value;
};

/// Queries, keys and values from the first of `reads`: three of them, of which the last may hold the others too, or one that holds all side
/// by side.
Heads heads_of(const std::vector<Tensor>& reads, const CompiledShape& s) {
  const std::int64_t width = s.q_width() + 2 * s.kv_width();
  const auto part = [&](const Tensor& all, std::int64_t heads) {
    return all.tape().view(all, {s.batch, heads, s.length, s.head_dim}, {s.length * width, s.head_dim, width, 1});
  };
  if (!s.rotary && s.fused_qkv) return {part(reads[0], s.heads), part(reads[0], s.kv_heads), part(reads[0], s.kv_heads)};
  const Tensor value = s.fused_qkv ? part(reads[2], s.kv_heads) : as_heads(reads[2], s, s.kv_heads);
  return {as_heads(reads[0], s, s.heads), as_heads(reads[1], s, s.kv_heads), value};
}

constexpr DType kFp32 = DType::fp32;

}  // namespace

// ---- forward ----------------------------------------------------------------------------------------------------------

void CompiledLayer::low_weight(CompiledSlot weight, std::int64_t in, std::int64_t out) {
  if (s_.casts()) v_[weight] = g_.pointwise({in, out}, s_.low, {v_[weight]});
}

/// The weight and the bias in the type of the products.
void CompiledLayer::low_copy(CompiledSlot weight, std::int64_t in, std::int64_t out) {
  low_weight(weight, in, out);
  if (s_.casts() && s_.biased[weight]) v_[weight + 1] = g_.pointwise({out}, s_.low, {v_[weight + 1]});
}

/// A product's weight and what it multiplies, where that is still to be computed: mm sees its weight's copy first, addmm its input, and so
/// does a graph without a backward.
void CompiledLayer::low_copy_and(const std::function<void()>& input, CompiledSlot weight, std::int64_t in, std::int64_t out) {
  const bool input_first = forward_only_ || s_.biased[weight];
  if (input_first) input();
  low_copy(weight, in, out);
  if (!input_first) input();
}

/// What the norm sums over columns. The scale is a buffer of its own where the backward graph is given it.
void CompiledLayer::norm_statistics(const Norm& norm, const Values& reads) {
  const Values before = norm.mean == kMlpMean ? dropped_ : Values{};
  v_[norm.mean] = g_.reduction(per_row(), kFp32, reads);
  Value square = v_[norm.mean];
  if (s_.layer_norm) {
    square = g_.reduction(per_row(), kFp32, reads);
    g_.skip_name();  // var_mean's count
  }
  v_[norm.scale] = s_.checkpointed ? square : g_.pointwise(per_row(), kFp32, {square});
  if (s_.layer_norm) {
    statistics_ = {v_[norm.mean], square, v_[norm.scale]};
  } else {
    statistics_ = {square, v_[norm.scale]};
    v_[norm.mean] = {};
  }
  statistics_.insert(statistics_.end(), before.begin(), before.end());
}

void CompiledLayer::apply_norm(const Norm& norm, const Values& reads) {
  if (v_[norm.normed].defined()) return;  // for the other branch of a parallel layer
  Values all = reads;
  for (const Value value : {v_[norm.mean], v_[norm.scale]}) all.push_back(value);
  if (norm.mean == kMlpMean && s_.dropout && s_.checkpointed && !forward_only_) {
    standardized_ = g_.pointwise(stream_sizes(), kFp32, all);
    statistics_.push_back(standardized_);
    all = {standardized_};
  }
  for (const Value value : {v_[norm.weight], v_[norm.bias]}) all.push_back(value);
  v_[norm.normed] = g_.pointwise(stream_sizes(), s_.low, all);
  statistics_.push_back(v_[norm.normed]);
  g_.fuse(statistics_);
}

Value CompiledLayer::linear(CompiledSlot weight, Value input, std::int64_t in, std::int64_t out) {
  return g_.product(s_.low, s_.rows(), out, in, {input, v_[weight]}, v_[weight + 1]);
}

/// The scale of an RMS norm over each head; of all together where `heads` is 1.
void CompiledLayer::head_statistics(CompiledSlot raw, CompiledSlot scale, std::int64_t heads) {
  if (!s_.head_norms && !s_.row_norms) return;
  const Dims sizes{s_.batch, s_.length, heads, 1};
  const Value sum = g_.reduction(sizes, kFp32, {v_[raw]});
  v_[scale] = s_.checkpointed ? sum : g_.pointwise(sizes, kFp32, {sum});
  (raw == kRawQuery ? query_statistics_ : key_statistics_) = {sum, v_[scale]};
}

/// The heads' norm as a value of its own, where it is too much to be computed twice by the rotation: without a scale that is kept, or under
/// autocast, where it is fp32.
Value CompiledLayer::norm_heads(CompiledSlot raw, CompiledSlot scale, CompiledSlot weight, std::int64_t heads) {
  if (!s_.head_norms || !(s_.checkpointed || s_.casts())) return {};
  const Value normed = g_.pointwise({s_.batch, s_.length, heads, s_.head_dim}, s_.wide, {v_[raw], v_[scale], v_[weight]});
  (raw == kRawQuery ? query_statistics_ : key_statistics_).push_back(normed);
  return normed;
}

void CompiledLayer::rotate(CompiledSlot raw, CompiledSlot scale, CompiledSlot weight, Value normed, CompiledSlot turned,
                           std::int64_t heads) {
  const Dims sizes{s_.batch, heads, s_.length, s_.head_dim};
  if (s_.fused_qkv) {
    v_[turned] = g_.pointwise(sizes, s_.low, {v_[kProjections], v_[kCosine], v_[kSine]});
    return;
  }
  v_[turned] = normed.defined() ? g_.pointwise(sizes, s_.low, {normed, v_[kCosine], v_[kSine]})
                                : g_.pointwise(sizes, s_.low, {v_[raw], v_[scale], v_[weight], v_[kCosine], v_[kSine]});
  if (!s_.head_norms) return;
  Values& statistics = raw == kRawQuery ? query_statistics_ : key_statistics_;
  statistics.push_back(v_[turned]);
  g_.fuse(statistics);
}

/// The projections of the norm's output.
void CompiledLayer::project(const Norm& norm, const Values& reads) {
  if (s_.fused_qkv) {
    const std::int64_t width = qkv_width();
    low_copy_and([&] { apply_norm(norm, reads); }, kQkv, s_.hidden, width);
    v_[kProjections] = linear(kQkv, v_[kNormed], s_.hidden, width);
    return;
  }
  low_copy_and([&] { apply_norm(norm, reads); }, kQ, s_.hidden, s_.q_width());
  v_[kRawQuery] = linear(kQ, v_[kNormed], s_.hidden, s_.q_width());
  if (s_.scaled_queries && !s_.checkpointed)
    v_[kQuery] = g_.pointwise({s_.batch, s_.length, s_.q_width()}, s_.low, {v_[kRawQuery]}, {v_[kRawQuery]});
  head_statistics(kRawQuery, kQueryScale, s_.heads);
  low_copy(kK, s_.hidden, s_.kv_width());
  v_[kRawKey] = linear(kK, v_[kNormed], s_.hidden, s_.kv_width());
  if (!s_.rotary) {
    v_[kKey] = v_[kRawKey];
    if (!s_.scaled_queries) v_[kQuery] = v_[kRawQuery];
  }
  head_statistics(kRawKey, kKeyScale, s_.kv_heads);
  low_copy(kV, s_.hidden, s_.kv_width());
  v_[kValue] = linear(kV, v_[kNormed], s_.hidden, s_.kv_width());
}

/// The scaled queries of a checkpointed layer: nobody keeps them, so that their kernel stands where attention reads them.
Value CompiledLayer::scale_queries() {
  return g_.pointwise({s_.batch, s_.heads, s_.length, s_.head_dim}, s_.low, {v_[kRawQuery]}, {v_[kRawQuery]});
}

/// Queries, keys and values as attention reads them: one product's result, or three tensors.
CompiledLayer::Values CompiledLayer::attention_inputs() const {
  if (s_.fused_qkv && !s_.rotary) return {v_[kProjections]};
  return {v_[kQuery], v_[kKey], v_[s_.fused_qkv ? kProjections : kValue]};
}

std::vector<Value> CompiledLayer::flash(const Values& reads) {
  std::vector<inductor::Graph::Output> outputs{{{s_.batch, s_.heads, s_.length, s_.head_dim}, s_.low}};
  if (!forward_only_) {
    outputs.push_back({{s_.batch, s_.heads, s_.length}, kFp32});
    outputs.push_back({{2}, DType::int64});
    outputs.push_back({{1}, DType::int64});
  }
  const CompiledShape shape = s_;
  const std::vector<Value> results = g_.call(reads, outputs, [shape](const std::vector<Tensor>& tensors) {
    const Heads heads = heads_of(tensors, shape);
    FlashOutputs all = flash_attention_forward(heads.query, heads.key, heads.value, shape.causal, shape.attention_dropout);
    return std::vector<Tensor>{std::move(all.output), std::move(all.log_sum_exp), std::move(all.rng_state), std::move(all.rng_offset)};
  });
  for (std::size_t i = results.size(); i < 5; ++i) g_.skip_name();  // the rest of what the operator returns
  for (std::size_t i = 0; i < results.size(); ++i) v_[kAttended + i] = results[i];
  return results;
}

void CompiledLayer::attend() {
  if (s_.masked) {
    attend_masked();
    return;
  }
  if (!s_.rotary) {
    if (s_.scaled_queries && s_.checkpointed) v_[kQuery] = scale_queries();
    flash(attention_inputs());
    return;
  }
  if (s_.partial_rotary && s_.casts()) {
    join_rotations();
    flash(attention_inputs());
    return;
  }
  const auto norm_query = [this] { return norm_heads(kRawQuery, kQueryScale, kQNorm, s_.heads); };
  const auto norm_key = [this] { return norm_heads(kRawKey, kKeyScale, kKNorm, s_.kv_heads); };
  const auto rotate_query = [this](Value normed) { rotate(kRawQuery, kQueryScale, kQNorm, normed, kQuery, s_.heads); };
  const auto rotate_key = [this](Value normed) { rotate(kRawKey, kKeyScale, kKNorm, normed, kKey, s_.kv_heads); };
  if (forward_only_) {
    const Value query = norm_query(), key = norm_key();
    rotate_query(query);
    rotate_key(key);
  } else if (s_.casts() && !s_.fp32_tables) {
    const Value query = norm_query(), key = norm_key();
    rotate_key(key);
    rotate_query(query);
  } else {
    rotate_query(norm_query());
    rotate_key(norm_key());
  }
  fuse_rotations(v_[kQuery], v_[kKey]);
  flash(attention_inputs());
}

/// Under autocast, as many queries as keys have the same loops and read the same fp32 tables: one kernel rotates both. So it does where
/// tables are always fp32, where a part of each head is turned, and beside a mask.
void CompiledLayer::fuse_rotations(Value query, Value key) {
  const bool one = s_.casts() || s_.fp32_tables || s_.partial_rotary || s_.masked;
  if (one && s_.rotary && s_.heads == s_.kv_heads && (!s_.fused_qkv || s_.parallel) && !s_.head_norms) g_.fuse({query, key});
}

/// Seeds of both dropouts, and the attention's: its mask is kept, or what it drew until it is used again.
void CompiledLayer::drop_attention() {
  if (!seeds_.defined()) seeds_ = g_.pointwise({2}, DType::int64, {});
  random_ = g_.pointwise(stream_sizes(), kFp32, {seeds_});
  dropped_ = {random_};
  if (s_.checkpointed) return;
  v_[kAttentionMask] = g_.pointwise(stream_sizes(), DType::boolean, {random_});
  dropped_.push_back(v_[kAttentionMask]);
}

/// From the arguments to the MLP's products.
void CompiledLayer::compute() {
  const Norm mlp{kMlpNorm, kMlpNormBias, kMlpMean, kMlpScale, kMlpNormed};
  norm_statistics(kInput, {v_[kHidden]});
  project(kInput, {v_[kHidden]});
  attend();
  low_copy_and(
      [this] {
        if (s_.partial_rotary) merge_heads();
      },
      kOutput, s_.q_width(), s_.hidden);
  v_[kProjected] = linear(kOutput, merged(), s_.q_width(), s_.hidden);

  if (s_.dropout) drop_attention();
  const Values stream{v_[kHidden], v_[kProjected], s_.checkpointed ? random_ : v_[kAttentionMask]};
  const bool two = s_.gated && !s_.fused_gate_up;
  const CompiledSlot first = two ? kGate : kUp;
  const std::int64_t up = s_.fused_gate_up ? 2 * s_.inner : s_.inner;
  norm_statistics(mlp, stream);
  low_copy_and([&] { apply_norm(mlp, stream); }, first, s_.hidden, up);
  if (two) {
    v_[kGated] = linear(kGate, v_[kMlpNormed], s_.hidden, s_.inner);
    low_copy(kUp, s_.hidden, s_.inner);
  }
  v_[kRaised] = linear(kUp, v_[kMlpNormed], s_.hidden, up);
}

void CompiledLayer::merge_heads() {
  // Queries that a graph computes again, and neighbours turned in a checkpointed layer, lie as their product does, and so attention's
  // result.
  const bool in_place = s_.checkpointed && !s_.norms_behind && !s_.casts() && (s_.neighbours || !forward_only_);
  v_[kMerged] =
      g_.pointwise({s_.batch, s_.length, s_.heads, s_.head_dim}, s_.low, {v_[kAttended]}, in_place ? Values{v_[kAttended]} : Values{});
}

void CompiledLayer::activate() {
  v_[kActivated] = g_.pointwise({s_.batch, s_.length, s_.inner}, s_.low, {v_[kGated], v_[kRaised]}, {v_[kGated], v_[kRaised]});
}

Value CompiledLayer::forward() {
  forward_only_ = s_.checkpointed;
  if (s_.norms_behind) return forward_behind();
  compute();
  low_copy_and([this] { activate(); }, kDown, s_.inner, s_.hidden);
  const Value branch = linear(kDown, v_[kActivated], s_.inner, s_.hidden);
  if (!s_.dropout) {
    const Values branches = s_.mlp_first ? Values{branch, v_[kProjected]} : Values{v_[kProjected], branch};
    return g_.pointwise(stream_sizes(), s_.wide, {v_[kHidden], v_[kProjected], branch}, branches);
  }
  const Value random = g_.pointwise(stream_sizes(), kFp32, {seeds_});
  if (!s_.checkpointed) v_[kMlpMask] = g_.pointwise(stream_sizes(), DType::boolean, {random});
  const Value attention = s_.checkpointed ? random_ : v_[kAttentionMask], mlp = s_.checkpointed ? random : v_[kMlpMask];
  const Value output =
      g_.pointwise(stream_sizes(), s_.wide, {v_[kHidden], v_[kProjected], attention, branch, mlp}, {random_, v_[kProjected], branch});
  g_.fuse({random, v_[kMlpMask], output});
  return output;
}

// ---- backward ---------------------------------------------------------------------------------------------------------

/// The gradient of a linear's weight [out, in], in the weight's type.
void CompiledLayer::to_weight(CompiledSlot weight, Value gradient, Value input, std::int64_t in, std::int64_t out) {
  gradients_[weight] = g_.product(s_.low, out, in, s_.rows(), {gradient, input});
}

void CompiledLayer::widen(CompiledSlot weight, std::int64_t in, std::int64_t out) {
  if (s_.casts()) gradients_[weight] = g_.pointwise({out, in}, s_.wide, {gradients_[weight]});
}

Value CompiledLayer::to_input(CompiledSlot weight, Value gradient, std::int64_t in, std::int64_t out) {
  return g_.product(s_.low, s_.rows(), in, out, {gradient, v_[weight]});
}

/// A sum over rows of `reads`: in parts where there are many, and the parts themselves.
CompiledLayer::RowSum CompiledLayer::sum_rows(const Values& reads, std::int64_t width, DType type) {
  const std::int64_t parts = inductor::outer_sum_splits(tape_, s_.rows(), width);
  if (parts <= 1) {
    const Value sum = g_.reduction({width}, type, reads);
    return {sum, sum};
  }
  const Value partial = g_.reduction({parts, width}, kFp32, reads);
  return {g_.reduction({width}, type, {partial}), partial};
}

/// A linear's backward: mm's has the weight's gradient first, addmm's the input's. Gives the input's gradient.
Value CompiledLayer::linear_backward(CompiledSlot weight, Value gradient, Value input, std::int64_t in, std::int64_t out) {
  if (!s_.biased[weight]) {
    to_weight(weight, gradient, input, in, out);
    const Value result = to_input(weight, gradient, in, out);
    widen(weight, in, out);
    return result;
  }
  const Value result = to_input(weight, gradient, in, out);
  to_weight(weight, gradient, input, in, out);
  finish_biased(weight, gradient, in, out);
  return result;
}

/// The sum that is the gradient of a linear's bias.
Value CompiledLayer::sum_for_bias(CompiledSlot weight, Value gradient, std::int64_t out) {
  // Under autocast a sum that was taken already is found again; else it would be a result twice.
  const bool known = s_.casts() && weight == kOutput && gradient.index == down_gradient_.index;
  const RowSum sums = known ? down_bias_ : sum_rows({gradient}, out, s_.casts() ? kFp32 : s_.wide);
  bias_parts_ = sums.parts;
  if (weight == kDown) {
    down_bias_ = sums;
    down_gradient_ = gradient;
  }
  return sums.total;
}

/// The gradients of a linear's weight and bias in the parameters' type.
void CompiledLayer::widen_biased(CompiledSlot weight, Value sum, std::int64_t in, std::int64_t out) {
  const auto bias = static_cast<CompiledSlot>(weight + 1);
  if (!s_.conv1d) widen(weight, in, out);
  // Under autocast the sum is rounded to the products' type and widened again, by the same kernel.
  gradients_[bias] = s_.casts() ? g_.pointwise({out}, s_.wide, {sum}) : sum;
  if (s_.casts()) g_.fuse({sum, gradients_[bias]});
  if (s_.conv1d) widen(weight, in, out);
}

/// The bias's gradient and, under autocast, the parameters' type.
void CompiledLayer::finish_biased(CompiledSlot weight, Value gradient, std::int64_t in, std::int64_t out) {
  widen_biased(weight, sum_for_bias(weight, gradient, out), in, out);
}

/// A norm's backward: sums over rows for its parameters, sums over columns, and the gradient of its input added to `residual`.
CompiledLayer::NormGradient CompiledLayer::norm_backward(const Norm& norm, const Values& gradients, const Values& stream,
                                                         const Values& residual) {
  Values reads = stream;
  for (const Value value : {v_[norm.mean], v_[norm.scale]}) reads.push_back(value);
  Values weighted = gradients;
  weighted.push_back(v_[norm.weight]);
  Values all = reads;
  for (const Value value : weighted) all.push_back(value);
  Values kernel;
  NormGradient result;

  const auto sums_of_rows = [&] {
    kernel.push_back(g_.reduction(per_row(), kFp32, s_.layer_norm ? weighted : all));
    if (s_.layer_norm) kernel.push_back(g_.reduction(per_row(), kFp32, all));
  };
  Values for_weight = reads;
  for (const Value value : gradients) for_weight.push_back(value);
  if (!s_.norm_weights) {
    sums_of_rows();
  } else if (s_.layer_norm) {
    sums_of_rows();
    if (gradients.size() > 1) {  // more reads than one expression may have
      Values summed = all;
      for (const Value value : kernel) summed.push_back(value);
      kernel.push_back(g_.pointwise(stream_sizes(), kFp32, summed));
    }
    result.weight = sum_rows(for_weight, s_.hidden, kFp32);
    result.bias = sum_rows(gradients, s_.hidden, kFp32);
    if (stream.size() > 1 && s_.checkpointed && gradients.size() == 1) kernel.push_back(g_.pointwise(stream_sizes(), s_.low, all));
    gradients_[norm.weight] = narrowed(result.weight.total, s_.hidden);
    gradients_[norm.bias] = narrowed(result.bias.total, s_.hidden);
    if (stream.size() > 1 && gradients.size() > 1 && s_.casts()) {  // what is left to do with the fp32 value may be done twice
      result.residual = residual;
      result.residual.insert(result.residual.begin(), {kernel.back(), v_[norm.scale]});
      result.kernel = std::move(kernel);
      return result;
    }
  } else {
    result.weight = sum_rows(for_weight, s_.hidden, s_.widened_weights ? kFp32 : s_.wide);
    gradients_[norm.weight] = s_.widened_weights ? narrowed(result.weight.total, s_.hidden) : result.weight.total;
    sums_of_rows();
  }
  Values last = all;
  for (const Value value : kernel) last.push_back(value);
  if (stream.size() > 1 && s_.scaled_branches && s_.checkpointed && !s_.casts()) {
    // Scaled branches and a scale that is computed again: too many operations for one expression (config.realize_opcount_threshold), and
    // the sum with the residual is little enough to be computed twice.
    kernel.push_back(g_.pointwise(stream_sizes(), kFp32, last));
    result.residual = residual;
    result.residual.push_back(kernel.back());
    result.kernel = std::move(kernel);
    return result;
  }
  Values replaced = residual;
  for (const Value value : residual) last.push_back(value);
  for (const Value value : gradients) replaced.push_back(value);
  result.stream = g_.pointwise(stream_sizes(), s_.wide, last, replaced);
  result.residual = {result.stream};
  kernel.push_back(result.stream);
  result.kernel = std::move(kernel);
  return result;
}

/// A sum in fp32 in the type of the parameters, by the same kernel.
Value CompiledLayer::narrowed(Value sum, std::int64_t width) {
  if (s_.wide == kFp32) return sum;
  const Value narrow = g_.pointwise({width}, s_.wide, {sum});
  g_.fuse({sum, narrow});
  return narrow;
}

/// Through the rotation (opt: the queries' scale), and through the heads' norm where there is one: the gradient of the projection's result.
Value CompiledLayer::heads_backward(CompiledSlot raw, CompiledSlot scale, CompiledSlot weight, Value turned, std::int64_t heads) {
  if (!s_.rotary) {
    if (raw == kRawKey || !s_.scaled_queries) return turned;
    return g_.pointwise({s_.rows(), s_.q_width()}, s_.low, {turned}, {turned});  // the queries' scale
  }
  const Dims unturned{s_.batch, s_.length, heads, s_.head_dim};
  if (!s_.head_norms) return g_.pointwise(unturned, s_.low, {turned, v_[kCosine], v_[kSine]});
  const Value gradient = g_.pointwise({s_.batch, heads, s_.length, s_.head_dim}, s_.wide, {turned, v_[kCosine], v_[kSine]});
  const std::int64_t parts = inductor::outer_sum_splits(tape_, s_.rows() * heads, s_.head_dim);
  const Value partial = g_.reduction({parts, s_.head_dim}, kFp32, {gradient, v_[raw], v_[scale]});
  gradients_[weight] = g_.reduction({s_.head_dim}, s_.wide, {partial});
  const Value sum = g_.reduction({s_.batch, s_.length, heads, 1}, kFp32, {gradient, v_[raw], v_[weight], v_[scale]});
  const Value result = g_.pointwise(unturned, s_.low, {gradient, v_[raw], v_[weight], v_[scale], sum});
  g_.fuse({gradient, sum, result});
  return result;
}

/// The MLP's backward; the gradients that its products give to the norm's output.
CompiledLayer::Values CompiledLayer::mlp_backward(Value incoming) {
  Value down;
  const bool biased = s_.biased[kDown];
  if (s_.checkpointed) {
    if (biased) {
      low_weight(kDown, s_.inner, s_.hidden);
      down = to_input(kDown, incoming, s_.inner, s_.hidden);
    }
    compute();
    activate();
  }
  if (s_.checkpointed && biased) {
    to_weight(kDown, incoming, v_[kActivated], s_.inner, s_.hidden);
    finish_biased(kDown, incoming, s_.inner, s_.hidden);
  } else if (s_.checkpointed && s_.casts()) {
    to_weight(kDown, incoming, v_[kActivated], s_.inner, s_.hidden);
    low_copy(kDown, s_.hidden, s_.inner);
    down = to_input(kDown, incoming, s_.inner, s_.hidden);
    widen(kDown, s_.inner, s_.hidden);
  } else {
    down = linear_backward(kDown, incoming, v_[kActivated], s_.inner, s_.hidden);
  }
  const Dims sizes{s_.batch, s_.length, s_.inner};
  Values kernel;
  if (s_.checkpointed) kernel.push_back(v_[kActivated]);
  if (!s_.gated || s_.fused_gate_up) {
    const std::int64_t up = s_.fused_gate_up ? 2 * s_.inner : s_.inner;
    const Value input = s_.relu ? v_[kActivated] : v_[kRaised];
    Values replaced;
    if (!s_.fused_gate_up) replaced = s_.relu_squared ? Values{input, down} : Values{down, input};
    const Value raised = g_.pointwise({s_.batch, s_.length, up}, s_.low, {down, input}, replaced);
    kernel.push_back(raised);
    if (!s_.fused_gate_up) g_.fuse(kernel);
    return {linear_backward(kUp, raised, v_[kMlpNormed], s_.hidden, up)};
  }
  return gates_backward(down, std::move(kernel));
}

/// Through a gated MLP, from the gradient of its product down; `kernel` is what the gates' kernel makes beside their gradients.
CompiledLayer::Values CompiledLayer::gates_backward(Value down, Values kernel) {
  const Dims sizes{s_.batch, s_.length, s_.inner};
  const Value raised = g_.pointwise(sizes, s_.low, {down, v_[kGated]}, {});
  const Value from_up = linear_backward(kUp, raised, v_[kMlpNormed], s_.hidden, s_.inner);
  const Value gated = g_.pointwise(sizes, s_.low, {down, v_[kGated], v_[kRaised]}, {v_[kRaised], down});
  const Value from_gate = linear_backward(kGate, gated, v_[kMlpNormed], s_.hidden, s_.inner);
  kernel.push_back(raised);
  kernel.push_back(gated);
  g_.fuse(kernel);
  return {from_up, from_gate};
}

/// The gradients of queries, keys and values side by side. Slices of a rotation's result are added up, each in a buffer as wide as all;
/// under autocast the rotations' results are buffers first.
Value CompiledLayer::join_projections(const Values& gradients) {
  const Dims sizes{s_.batch, s_.length, qkv_width()};
  if (!s_.rotary) return g_.pointwise(sizes, s_.low, gradients);
  if (s_.casts()) {
    const auto turn = [&](Value gradient, std::int64_t heads) {
      return g_.pointwise({s_.batch, heads, s_.length, s_.head_dim}, s_.low, {gradient, v_[kCosine], v_[kSine]});
    };
    const Value key = turn(gradients[1], s_.kv_heads), query = turn(gradients[0], s_.heads);
    return g_.pointwise(sizes, s_.low, {query, key, gradients[2]});
  }
  const Value query = g_.pointwise(sizes, s_.low, {gradients[1], v_[kCosine], v_[kSine]});
  const Value key = g_.pointwise(sizes, s_.low, {gradients[0], v_[kCosine], v_[kSine]});
  const Value joined = g_.pointwise(sizes, s_.low, {query, key, gradients[2]});
  g_.fuse({query, key, joined});
  return joined;
}

/// Of a single head, the turned gradient and its sum over rows have the same loops: one kernel.
void CompiledLayer::fuse_with_bias(CompiledSlot weight, Value gradient, std::int64_t heads) {
  if (s_.biased[weight] && heads == 1 && s_.rotary && !s_.head_norms) g_.fuse({gradient, bias_parts_});
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
  if (s_.partial_rotary && s_.checkpointed && s_.casts()) cast_rotations_again();
  Values reads = attention_inputs();
  const std::size_t position = reads.size();
  for (const Value value : {gradient, v_[kAttended], v_[kLogSumExp], v_[kRngState], v_[kRngOffset]}) reads.push_back(value);
  return g_.call(
      reads, {{wide_heads, s_.low}, {narrow_heads, s_.low}, {narrow_heads, s_.low}}, [shape, position](const std::vector<Tensor>& tensors) {
        const Dims sizes{shape.batch, shape.length, shape.heads, shape.head_dim};
        const Heads heads = heads_of(tensors, shape);
        // _flash_attention_backward reads attention's result with heads behind positions.
        const Tensor result = shape.heads_first() ? contiguous(heads_before_positions(tensors[position + 1], shape)) : Tensor();
        FlashGradients all =
            flash_attention_backward(heads.query, heads.key, heads.value,
                                     tensors[position].tape().view(tensors[position], sizes, contiguous_strides(sizes)), shape.causal);
        return std::vector<Tensor>{std::move(all.query), std::move(all.key), std::move(all.value)};
      });
}

/// From the residual stream's gradient to the gradients that the three projections give to the norm's output.
CompiledLayer::Values CompiledLayer::attention_backward(Value narrow) {
  const Value attended = linear_backward(kOutput, narrow, merged(), s_.q_width(), s_.hidden);
  const std::vector<Value> flash = flash_backward(attended);
  if (s_.fused_qkv) {
    return {linear_backward(kQkv, join_projections(flash), v_[kNormed], s_.hidden, qkv_width())};
  }
  if (s_.partial_rotary) return partial_rotary_backward(flash);
  if (s_.masked) return masked_projections_backward(flash);
  const Value from_value = linear_backward(kV, flash[2], v_[kNormed], s_.hidden, s_.kv_width());
  const Value key = heads_backward(kRawKey, kKeyScale, kKNorm, flash[1], s_.kv_heads);
  const Value from_key = linear_backward(kK, key, v_[kNormed], s_.hidden, s_.kv_width());
  fuse_with_bias(kK, key, s_.kv_heads);
  const Value query = heads_backward(kRawQuery, kQueryScale, kQNorm, flash[0], s_.heads);
  const Value from_query = linear_backward(kQ, query, v_[kNormed], s_.hidden, s_.q_width());
  fuse_with_bias(kQ, query, s_.heads);
  fuse_rotations(query, key);
  return {from_value, from_key, from_query};
}

void CompiledLayer::fuse_norms(const NormGradient& mlp, const NormGradient& input) {
  const bool mixed = inductor::mixes_reduction_orders(s_.rows(), s_.hidden);
  if (s_.dropout) {  // the MLP's norm reads its standardized input: nothing in common with the other's
    for (const NormGradient* norm : {&mlp, &input}) {
      const Values parts{norm->weight.parts, norm->bias.parts};
      if (mixed) {
        g_.mix(norm->kernel, parts, {norm->weight.total, norm->bias.total}, s_.rows(), s_.hidden);
      } else {
        g_.fuse(norm->kernel);
        g_.fuse(parts);
        if (norm == &mlp && !s_.checkpointed) g_.fuse({standardized_, norm->kernel.front()});
      }
    }
    return;
  }
  if (!s_.norm_weights) {
    g_.fuse(mlp.kernel);
    g_.fuse(input.kernel);
    return;
  }
  Values sums{mlp.weight.parts};
  if (s_.layer_norm) sums.push_back(mlp.bias.parts);
  sums.push_back(input.weight.parts);
  if (s_.layer_norm) sums.push_back(input.bias.parts);
  g_.fuse(mlp.kernel);
  if (!mixed) {
    g_.fuse(sums);
    g_.fuse(input.kernel);
    return;
  }
  Values totals{mlp.weight.total};
  if (s_.layer_norm) totals.push_back(mlp.bias.total);
  totals.push_back(input.weight.total);
  if (s_.layer_norm) totals.push_back(input.bias.total);
  // The sums over columns go with those over rows; what follows them is a kernel of its own.
  const auto columns = input.kernel.begin() + (s_.layer_norm ? 2 : 1);
  g_.mix({input.kernel.begin(), columns}, sums, totals, s_.rows(), s_.hidden);
  g_.fuse({columns, input.kernel.end()});
  // The MLP's norm reads the incoming gradient, as the sum for the last product's bias does.
  if (s_.layer_norm && s_.biased[kDown] && !s_.casts()) g_.mix(mlp.kernel, {down_bias_.parts}, {down_bias_.total}, s_.rows(), s_.hidden);
}

/// The MLP's norm behind a dropout, before its weight: a buffer, because its kernel reads too much to be repeated.
Value CompiledLayer::standardize() {
  if (!standardized_.defined())
    standardized_ = g_.pointwise(stream_sizes(), kFp32, {v_[kHidden], v_[kProjected], v_[kAttentionMask], v_[kMlpMean], v_[kMlpScale]});
  return standardized_;
}

/// norm_backward of the MLP's norm behind a dropout; `masked` is what the dropout gives to the output projection.
CompiledLayer::NormGradient CompiledLayer::dropped_norm_backward(Value gradient, Value residual, Value& masked) {
  NormGradient result;
  const Value first = g_.reduction(per_row(), kFp32, {gradient, v_[kMlpNorm]});
  const Value standardized = standardize();
  const Value second = g_.reduction(per_row(), kFp32, {gradient, v_[kMlpNorm], standardized});
  result.weight = sum_rows({gradient, standardized}, s_.hidden, kFp32);
  result.bias = sum_rows({gradient}, s_.hidden, kFp32);
  gradients_[kMlpNorm] = narrowed(result.weight.total, s_.hidden);
  gradients_[kMlpNormBias] = narrowed(result.bias.total, s_.hidden);
  result.stream =
      g_.pointwise(stream_sizes(), s_.wide, {residual, gradient, v_[kMlpNorm], standardized, v_[kMlpScale], first, second}, {residual});
  masked = g_.pointwise(stream_sizes(), s_.low, {result.stream, s_.checkpointed ? random_ : v_[kAttentionMask]});
  result.residual = {result.stream};
  result.kernel = {first, second, result.stream, masked};
  return result;
}

/// The incoming gradient as the last product needs it: masked, scaled, or in its type.
Value CompiledLayer::enter(Value incoming) {
  if (!s_.dropout) return s_.casts() || s_.scaled_branches ? g_.pointwise({s_.rows(), s_.hidden}, s_.low, {incoming}) : incoming;
  if (!s_.checkpointed) return g_.pointwise(stream_sizes(), s_.low, {incoming, v_[kMlpMask]});
  seeds_ = g_.pointwise({2}, DType::int64, {});
  const Value random = g_.pointwise(stream_sizes(), kFp32, {seeds_});
  const Value masked = g_.pointwise(stream_sizes(), s_.low, {incoming, random});
  g_.fuse({random, masked});
  return masked;
}

std::array<Value, kArguments> CompiledLayer::backward(Value incoming) {
  if (s_.norms_behind) return backward_behind(incoming);
  const Values from_mlp = mlp_backward(enter(incoming));
  NormGradient mlp;
  Value middle;
  if (s_.dropout) {
    mlp = dropped_norm_backward(from_mlp.front(), incoming, middle);
  } else {
    mlp = norm_backward({kMlpNorm, kMlpNormBias, kMlpMean, kMlpScale, kMlpNormed}, from_mlp, {v_[kHidden], v_[kProjected]}, {incoming});
    middle = mlp.stream;
    if (s_.casts() || s_.scaled_branches) {
      middle = g_.pointwise({s_.rows(), s_.hidden}, s_.low, mlp.residual);
      mlp.kernel.push_back(middle);
    }
  }
  const Values from_attention = attention_backward(middle);
  const NormGradient input = norm_backward(kInput, from_attention, {v_[kHidden]}, mlp.residual);
  fuse_norms(mlp, input);
  gradients_[kHidden] = input.stream;
  return gradients_;
}

}  // namespace plimsoll::program

// The forward graph of a compiled layer, which a checkpointed layer's backward graph computes again.
#include "program/modules/transformers/compiled/layer.hpp"

namespace plimsoll::program {

using inductor::Value;

constexpr DType kFp32 = DType::fp32;

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

/// What the norm sums over columns. The scale is a buffer of its own where the backward graph is given it. A sum that the graph made for
/// the norm is written by the same kernel.
void CompiledLayer::norm_statistics(const Norm& norm, const Values& reads) {
  Values before;
  if (norm.mean == kMlpMean) before = dropped_;
  if (norm.mean == kInputMean && s_.in_model) before = {v_[kHidden]};
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
  if (v_[norm.normed].defined()) return;  // for a product before this one
  Values all = reads;
  for (const Value value : {v_[norm.mean], v_[norm.scale]}) all.push_back(value);
  if (v_[norm.out].defined()) {
    v_[norm.normed] = g_.pointwise(stream_sizes(), s_.low, {v_[norm.out]});
    return g_.fuse({v_[norm.out], v_[norm.normed]});
  }
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
  return g_.product(s_.low, s_.rows(), out, in, {input, v_[weight]}, s_.conv1d ? inductor::Turned::neither : inductor::Turned::right,
                    v_[weight + 1]);
}

/// The scale of an RMS norm over each head; of all together where `heads` is 1.
void CompiledLayer::head_statistics(CompiledSlot raw, CompiledSlot scale, std::int64_t heads) {
  if (!s_.head_norms) return;
  const Dims sizes{s_.batch, s_.length, heads, 1};
  const Value sum = g_.reduction(sizes, kFp32, {v_[raw]});
  v_[scale] = s_.checkpointed ? sum : g_.pointwise(sizes, kFp32, {sum});
  (raw == kRawQuery ? query_statistics_ : key_statistics_) = {sum, v_[scale]};
}

/// The heads' norm as a value of its own, where it is too much to be computed twice by the rotation: without a scale that is kept, or under
/// autocast, where it is fp32.
Value CompiledLayer::norm_heads(CompiledSlot raw, CompiledSlot scale, CompiledSlot weight, std::int64_t heads) {
  const CompiledSlot handed_on = raw == kRawQuery ? kQueryNormed : kKeyNormed;
  if (v_[handed_on].defined()) return v_[handed_on];
  const bool apart = s_.apart(weight, kV);
  if (!s_.head_norms || !(s_.checkpointed || s_.casts() || apart)) return {};
  const Value normed = g_.pointwise({s_.batch, s_.length, heads, s_.head_dim}, s_.wide, {v_[raw], v_[scale], v_[weight]});
  if (apart) v_[handed_on] = normed;
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
    low_copy_and_norm(kQkv, norm, reads, s_.hidden, width);
    v_[kProjections] = linear(kQkv, input_of(kQkv, norm), s_.hidden, width);
    return;
  }
  low_copy_and_norm(kQ, norm, reads, s_.hidden, s_.q_width());
  v_[kRawQuery] = linear(kQ, input_of(kQ, norm), s_.hidden, s_.q_width());
  if (s_.scaled_queries && !s_.checkpointed)
    v_[kQuery] = g_.pointwise({s_.batch, s_.length, s_.q_width()}, s_.low, {v_[kRawQuery]}, {v_[kRawQuery]});
  head_statistics(kRawQuery, kQueryScale, s_.heads);
  if (s_.apart(kQNorm, kV)) norm_heads(kRawQuery, kQueryScale, kQNorm, s_.heads);
  low_copy_and_norm(kK, norm, reads, s_.hidden, s_.kv_width());
  v_[kRawKey] = linear(kK, input_of(kK, norm), s_.hidden, s_.kv_width());
  if (!s_.rotary) {
    v_[kKey] = v_[kRawKey];
    if (!s_.scaled_queries) v_[kQuery] = v_[kRawQuery];
  }
  head_statistics(kRawKey, kKeyScale, s_.kv_heads);
  if (s_.apart(kKNorm, kV)) norm_heads(kRawKey, kKeyScale, kKNorm, s_.kv_heads);
  low_copy_and_norm(kV, norm, reads, s_.hidden, s_.kv_width());
  v_[kValue] = linear(kV, input_of(kV, norm), s_.hidden, s_.kv_width());
}

/// The scaled queries of a checkpointed layer: nobody keeps them, so that their kernel stands where attention reads them.
Value CompiledLayer::scale_queries() {
  return g_.pointwise({s_.batch, s_.heads, s_.length, s_.head_dim}, s_.low, {v_[kRawQuery]}, {v_[kRawQuery]});
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
/// tables are always fp32, and beside a mask.
void CompiledLayer::fuse_rotations(Value query, Value key) {
  const bool one = s_.casts() || s_.fp32_tables || s_.masked;
  if (one && s_.rotary && s_.heads == s_.kv_heads && !s_.fused_qkv && !s_.head_norms) g_.fuse({query, key});
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

/// The sum behind attention, in the place of what its projection gave where the types allow.
void CompiledLayer::keep_middle() {
  v_[kMiddle] = g_.pointwise(stream_sizes(), s_.wide, middle_stream(), {v_[kProjected]});
  dropped_.push_back(v_[kMiddle]);
}

CompiledLayer::Values CompiledLayer::middle_stream() const {
  if (v_[kMiddle].defined()) return {v_[kMiddle]};
  Values stream{v_[kHidden], v_[kProjected]};
  if (s_.dropout) stream.push_back(s_.checkpointed ? random_ : v_[kAttentionMask]);
  return stream;
}

/// From the arguments to the MLP's products.
void CompiledLayer::compute() {
  enter(kInputNorm);
  norm_statistics(kInput, {v_[kHidden]});
  project(kInput, {v_[kHidden]});
  attend();
  enter(kOutput);
  low_copy(kOutput, s_.q_width(), s_.hidden);
  v_[kProjected] = linear(kOutput, v_[kAttended], s_.q_width(), s_.hidden);

  if (s_.dropout) drop_attention();
  if (s_.keeps_middle) keep_middle();
  const Values stream = middle_stream();
  const bool two = s_.gated && !s_.fused_gate_up;
  const CompiledSlot first = two ? kGate : kUp;
  const std::int64_t up = s_.fused_gate_up ? 2 * s_.inner : s_.inner;
  norm_statistics(kMlp, stream);
  low_copy_and_norm(first, kMlp, stream, s_.hidden, up);
  if (two) {
    v_[kGated] = linear(kGate, input_of(kGate, kMlp), s_.hidden, s_.inner);
    if (s_.apart(kGate, kUp)) v_[kGateActivated] = g_.pointwise({s_.batch, s_.length, s_.inner}, s_.low, {v_[kGated]});
    low_copy_and_norm(kUp, kMlp, stream, s_.hidden, s_.inner);
  }
  v_[kRaised] = linear(kUp, input_of(kUp, kMlp), s_.hidden, up);
}

void CompiledLayer::activate() {
  const Value gate = v_[kGateActivated].defined() ? v_[kGateActivated] : v_[kGated];
  v_[kActivated] = g_.pointwise({s_.batch, s_.length, s_.inner}, s_.low, {gate, v_[kRaised]}, {gate, v_[kRaised]});
}

/// The activation in its part, and in that of the product which reads it a copy in its type.
void CompiledLayer::activate_for_down() {
  enter(kUp);
  if (s_.apart(kUp, kDown) && s_.wide_activation && s_.casts()) {
    v_[kActivatedOut] = g_.pointwise({s_.batch, s_.length, s_.inner}, s_.wide, {v_[kRaised]});
    enter(kDown);
    v_[kActivated] = g_.pointwise({s_.batch, s_.length, s_.inner}, s_.low, {v_[kActivatedOut]});
    return;
  }
  activate();
  enter(kDown);
}

Value CompiledLayer::forward() {
  forward_only_ = s_.checkpointed;
  compute();
  enter(kDown);
  low_copy_and([this] { activate_for_down(); }, kDown, s_.inner, s_.hidden);
  const Value branch = linear(kDown, v_[kActivated], s_.inner, s_.hidden);
  if (s_.apart(kOutput, kDown)) v_[kBranch] = branch;
  if (!s_.dropout) {
    Values branches = s_.mlp_first ? Values{branch, v_[kProjected]} : Values{v_[kProjected], branch};
    if (s_.in_model) branches = {branch};  // the other one is kept
    return g_.pointwise(stream_sizes(), s_.wide, joined(middle_stream(), {branch}), branches);
  }
  const Value random = g_.pointwise(stream_sizes(), kFp32, {seeds_});
  if (!s_.checkpointed) v_[kMlpMask] = g_.pointwise(stream_sizes(), DType::boolean, {random});
  const Value attention = s_.checkpointed ? random_ : v_[kAttentionMask], mlp = s_.checkpointed ? random : v_[kMlpMask];
  const Value output =
      g_.pointwise(stream_sizes(), s_.wide, {v_[kHidden], v_[kProjected], attention, branch, mlp}, {random_, v_[kProjected], branch});
  g_.fuse({random, v_[kMlpMask], output});
  return output;
}

}  // namespace plimsoll::program

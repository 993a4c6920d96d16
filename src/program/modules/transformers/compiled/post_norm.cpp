#include "program/modules/transformers/compiled/post_norm.hpp"

#include <utility>

#include "program/inductor/kernels.hpp"

namespace plimsoll::program {

using inductor::Value;

namespace {

constexpr DType kFp32 = DType::fp32;

}  // namespace

// ---- forward ----------------------------------------------------------------------------------------------------------

/// Projections of the layer's input, under autocast of one copy of it, and the attention.
void CompiledPostNormLayer::attend() {
  if (s_.casts()) v_[kNormed] = g_.pointwise(stream_sizes(), s_.low, {v_[kHidden]});
  const Value input = v_[s_.casts() ? kNormed : kHidden];
  for (const auto& [weight, result] : {std::pair(kQ, kQuery), std::pair(kK, kKey), std::pair(kV, kValue)}) {
    low_copy(weight, s_.hidden, s_.q_width());
    v_[result] = linear(weight, input, s_.hidden, s_.q_width());
  }
  flash(attention_inputs());
  low_copy(kOutput, s_.q_width(), s_.hidden);
}

/// What a dropout draws, and the mask that is kept of it.
Value CompiledPostNormLayer::drop(CompiledSlot mask) {
  const Value random = g_.pointwise(stream_sizes(), kFp32, {seeds_});
  Values& kernel = mask == kAttentionMask ? attention_kernel_ : output_kernel_;
  kernel.push_back(random);
  if (s_.checkpointed) return random;
  v_[mask] = g_.pointwise(stream_sizes(), DType::boolean, {random});
  kernel.push_back(v_[mask]);
  return v_[mask];
}

/// The norm of the attention's branch. Under autocast its input is kept standardized instead of what it is made of.
void CompiledPostNormLayer::norm_attention() {
  const Value projected = linear(kOutput, v_[kAttended], s_.q_width(), s_.hidden);
  const bool finishes = !s_.checkpointed && !s_.casts();
  if (finishes) v_[kProjected] = projected;
  seeds_ = g_.pointwise({2}, DType::int64, {});
  attention_mask_ = drop(kAttentionMask);
  Values reads{projected, attention_mask_, v_[kHidden]};
  const Value mean = g_.reduction(per_row(), kFp32, reads), square = g_.reduction(per_row(), kFp32, reads);
  g_.skip_name();  // var_mean's count
  v_[kInputScale] = finishes ? g_.pointwise(per_row(), kFp32, {square}) : square;
  if (finishes) v_[kInputMean] = mean;
  reads = joined(reads, {mean, v_[kInputScale]});
  attention_kernel_ = joined(attention_kernel_, {mean, square, v_[kInputScale]});
  Values may_replace{projected};
  if (keeps_standard()) {
    v_[kStandardized] = g_.pointwise(stream_sizes(), kFp32, reads);
    attention_kernel_.push_back(v_[kStandardized]);
    reads = may_replace = {v_[kStandardized]};
  }
  v_[kMlpNormed] = g_.pointwise(stream_sizes(), s_.low, joined(reads, {v_[kInputNorm], v_[kInputNormBias]}), may_replace);
  attention_kernel_.push_back(v_[kMlpNormed]);
}

/// The MLP's branch and the residual, before the second norm: a buffer where it is kept, or used by several.
void CompiledPostNormLayer::sum_branches(Value branch) {
  mlp_mask_ = drop(kMlpMask);
  const Values residual = s_.casts() ? Values{v_[kStandardized], v_[kInputNorm], v_[kInputNormBias]} : Values{v_[kMlpNormed]};
  summands_ = joined({branch, mlp_mask_}, residual);
  if (s_.checkpointed && (forward_only_ || !s_.casts())) return;
  v_[kSummed] = g_.pointwise(stream_sizes(), s_.wide, summands_, {branch});
  output_kernel_.push_back(v_[kSummed]);
  summands_ = {v_[kSummed]};
}

/// From the arguments to the sums of the second norm.
void CompiledPostNormLayer::compute() {
  attend();
  norm_attention();
  low_copy(kUp, s_.hidden, s_.inner);
  v_[kRaised] = linear(kUp, v_[kMlpNormed], s_.hidden, s_.inner);
  activate();
  low_copy(kDown, s_.inner, s_.hidden);
  sum_branches(linear(kDown, v_[kActivated], s_.inner, s_.hidden));
  v_[kMlpMean] = g_.reduction(per_row(), kFp32, summands_);
  v_[kMlpScale] = g_.reduction(per_row(), kFp32, summands_);
  g_.skip_name();
  output_kernel_ = joined(output_kernel_, {v_[kMlpMean], v_[kMlpScale]});
}

/// The layer's output, and what the backward graph needs of the norms.
Value CompiledPostNormLayer::finish() {
  const Value square = v_[kMlpScale];
  if (!s_.checkpointed && !s_.casts()) v_[kMlpScale] = g_.pointwise(per_row(), kFp32, {square});
  const Values standard = joined(summands_, {v_[kMlpMean], v_[kMlpScale]});
  Values may_replace{summands_.front()};
  if (!s_.casts()) may_replace.push_back(v_[kMlpNormed]);
  const Value output = g_.pointwise(stream_sizes(), s_.wide, joined(standard, {v_[kMlpNorm], v_[kMlpNormBias]}), may_replace);
  output_kernel_ = joined(output_kernel_, {v_[kMlpScale], output});
  if (s_.checkpointed || !s_.casts()) return output;
  v_[kSummed] = g_.pointwise(stream_sizes(), kFp32, standard);
  v_[kMlpScale] = g_.pointwise(per_row(), kFp32, {square});
  output_kernel_ = joined(output_kernel_, {v_[kSummed], v_[kMlpScale]});
  v_[kMlpMean] = {};
  v_[kInputScale] = g_.pointwise(per_row(), kFp32, {v_[kInputScale]});
  attention_kernel_.push_back(v_[kInputScale]);
  return output;
}

Value CompiledPostNormLayer::forward() {
  forward_only_ = s_.checkpointed;
  compute();
  const Value output = finish();
  g_.fuse(attention_kernel_);
  g_.fuse(output_kernel_);
  return output;
}

// ---- backward ---------------------------------------------------------------------------------------------------------

/// The second norm's input: kept, or as the graph that computes it again has it.
CompiledPostNormLayer::Standard CompiledPostNormLayer::standard_of_output() {
  if (!s_.checkpointed && s_.casts()) return {{v_[kSummed]}, v_[kMlpScale]};
  const Values input = joined(s_.checkpointed ? summands_ : Values{v_[kSummed]}, {v_[kMlpMean], v_[kMlpScale]});
  if (!s_.checkpointed || s_.casts()) return {input, {}};
  const Value standardized = g_.pointwise(stream_sizes(), kFp32, input);
  output_kernel_.push_back(standardized);
  return {{standardized}, v_[kMlpScale]};
}

/// Through a norm of layer and the dropout before it: the gradient of the norm's input, which the residual goes on with, is left in
/// `masked_` times the mask. `first` is the first sum over columns where it stands already.
Value CompiledPostNormLayer::norm_backward(const Norm& norm, Value first, const Values& gradients, const Standard& standard,
                                           const Values& may_replace, Value mask, Values kernel) {
  const Values weighted = joined(gradients, {v_[norm.weight]});
  const Values standardized = joined(weighted, standard.input);
  const Value second = g_.reduction(per_row(), kFp32, standardized);
  Value stream;
  const auto pass_on = [&] {
    stream = g_.pointwise(stream_sizes(), s_.wide, joined(standardized, {standard.scale, first, second}), may_replace);
  };
  if (s_.casts()) pass_on();
  const RowSum weight = sum_rows(joined(gradients, standard.input), s_.hidden, kFp32);
  const RowSum bias = sum_rows(gradients, s_.hidden, kFp32);
  if (!s_.casts()) pass_on();
  gradients_[norm.weight] = narrowed(weight.total, s_.hidden);
  gradients_[norm.bias] = narrowed(bias.total, s_.hidden);
  masked_ = g_.pointwise(stream_sizes(), s_.low, {stream, mask});
  kernel = joined(kernel, {first, second});
  if (inductor::mixes_reduction_orders(s_.rows(), s_.hidden)) {
    g_.mix(joined(kernel, {stream, masked_}), {weight.parts, bias.parts}, {weight.total, bias.total}, s_.rows(), s_.hidden);
  } else {
    g_.fuse(joined(kernel, {stream, masked_}));
    g_.fuse({weight.parts, bias.parts});
  }
  return stream;
}

/// What the MLP gives to the first norm's output.
Value CompiledPostNormLayer::mlp_backward(Value masked) {
  const Value down = linear_backward(kDown, masked, v_[kActivated], s_.inner, s_.hidden);
  const Value raised = g_.pointwise({s_.batch, s_.length, s_.inner}, s_.low, {down, v_[kRaised]}, {down, v_[kRaised]});
  return linear_backward(kUp, raised, v_[kMlpNormed], s_.hidden, s_.inner);
}

/// The gradient of the layer's input. Under autocast its parts are added up before the queries' weight has its own type again.
Value CompiledPostNormLayer::attention_backward(Value masked, Value residual) {
  const Value input = v_[kNormed];
  const Value attended = linear_backward(kOutput, masked, v_[kAttended], s_.q_width(), s_.hidden);
  const std::vector<Value> flash = flash_backward(attended);
  const Value from_value = linear_backward(kV, flash[2], input, s_.hidden, s_.q_width());
  const Value from_key = linear_backward(kK, flash[1], input, s_.hidden, s_.q_width());
  const Value from_query = to_input(kQ, flash[0], s_.hidden, s_.q_width());
  to_weight(kQ, flash[0], input, s_.hidden, s_.q_width());
  const Value sum = sum_for_bias(kQ, flash[0], s_.q_width());
  const Value stream = g_.pointwise(stream_sizes(), s_.wide, {residual, from_value, from_key, from_query}, {residual});
  widen_biased(kQ, sum, s_.hidden, s_.q_width());
  return stream;
}

/// The first norm's input, standardized.
Value CompiledPostNormLayer::standard_of_attention() {
  if (v_[kStandardized].defined()) return v_[kStandardized];
  return g_.pointwise(stream_sizes(), kFp32, {v_[kProjected], v_[kAttentionMask], v_[kInputMean], v_[kHidden], v_[kInputScale]});
}

std::array<Value, kArguments> CompiledPostNormLayer::backward(Value incoming) {
  const auto sum_columns = [this](Values reads) { return g_.reduction(per_row(), kFp32, std::move(reads)); };
  Value first;
  if (s_.checkpointed) {
    if (s_.casts()) first = sum_columns({incoming, v_[kMlpNorm]});
    compute();
    g_.fuse(attention_kernel_);
  } else {
    attention_mask_ = v_[kAttentionMask];
    mlp_mask_ = v_[kMlpMask];
  }
  if (!s_.casts()) v_[kNormed] = v_[kHidden];
  const Standard output = standard_of_output();
  if (!first.defined()) first = sum_columns({incoming, v_[kMlpNorm]});
  const Value stream = norm_backward(kMlp, first, {incoming}, output, {v_[kSummed]}, mlp_mask_, output_kernel_);

  const Values gradients{stream, mlp_backward(masked_)};
  first = sum_columns(joined(gradients, {v_[kInputNorm]}));
  const Value standardized = standard_of_attention();
  const Value middle = norm_backward(kAttentionNorm, first, gradients, {{standardized}, v_[kInputScale]}, joined(gradients, {standardized}),
                                     attention_mask_, s_.checkpointed || s_.casts() ? Values{} : Values{standardized});
  gradients_[kHidden] = attention_backward(masked_, middle);
  return gradients_;
}

}  // namespace plimsoll::program

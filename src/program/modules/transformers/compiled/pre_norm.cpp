#include "program/modules/transformers/compiled/pre_norm.hpp"

namespace plimsoll::program {

using inductor::Value;

/// Draws a dropout's mask; the values that its kernel makes.
CompiledLayer::Values CompiledPreNormLayer::draw(CompiledSlot mask) {
  if (!s_.dropout) return {};
  const Value random = g_.pointwise(stream_sizes(), DType::fp32, {v_[kSeeds]});
  v_[mask] = g_.pointwise(stream_sizes(), DType::boolean, {random});
  return {random, v_[mask]};
}

Value CompiledPreNormLayer::enter_branch(Value gradient, CompiledSlot mask) {
  if (!s_.dropout && !s_.casts()) return gradient;
  const Value narrow = g_.pointwise(stream_sizes(), s_.low, {gradient, v_[mask]});
  g_.fuse({gradient, narrow});
  return narrow;
}

/// Where norms keep their inputs standardized nobody keeps the sums: that behind the MLP takes the place of that before the attention.
Value CompiledPreNormLayer::forward() {
  enter(kInputNorm);
  model_norm(kInputModelNorm, {v_[kHidden]}, {v_[kHidden]});
  project(kInput, {});
  attend();
  enter(kOutput);
  low_copy(kOutput, s_.q_width(), s_.hidden);
  v_[kProjected] = linear(kOutput, v_[kAttended], s_.q_width(), s_.hidden);

  Values kernel = draw(kAttentionMask);
  if (s_.keeps_middle) {
    keep_middle();
    kernel.push_back(v_[kMiddle]);
  }
  model_norm(kMlpModelNorm, middle_stream(), kernel);
  low_copy_and_norm(kUp, kMlp, {}, s_.hidden, s_.inner);
  v_[kRaised] = linear(kUp, input_of(kUp, kMlp), s_.hidden, s_.inner);
  activate_for_down();
  low_copy(kDown, s_.inner, s_.hidden);
  const Value branch = linear(kDown, v_[kActivated], s_.inner, s_.hidden);

  if (s_.apart(kOutput, kDown)) v_[kBranch] = branch;
  kernel = draw(kMlpMask);
  const Values replaced = s_.keeps_middle ? Values{branch} : Values{v_[kHidden]};
  kernel.push_back(g_.pointwise(stream_sizes(), s_.wide, joined(middle_stream(), {branch, v_[kMlpMask]}), replaced));
  g_.fuse(kernel);
  return kernel.back();
}

std::array<Value, kArguments> CompiledPreNormLayer::backward(Value incoming) {
  enter(kDown);
  const Value from_mlp = mlp_backward(enter_branch(incoming, kMlpMask)).front();
  enter(kDown);
  const Value behind = hand_back(kMiddle, incoming);
  enter(kMlpNorm);
  const Value middle = model_norm_backward(kMlpModelNorm, from_mlp, middle_stream(), behind);
  const Value branch = enter_branch(middle, kAttentionMask);
  const Value attended = linear_backward(kOutput, branch, v_[kAttended], s_.q_width(), s_.hidden);
  enter(kV);
  const Value joined_heads = join_projections(flash_backward(attended));
  const Value normed = linear_backward(kQkv, joined_heads, input_of(kQkv, kInput), s_.hidden, qkv_width());
  enter(kMlpNorm);
  const Value residual = hand_back(kHidden, middle);
  enter(kInputNorm);
  gradients_[kHidden] = model_norm_backward(kInputModelNorm, normed, input_stream(), residual);
  return gradients_;
}

}  // namespace plimsoll::program

// Compiled layers whose norms stand behind their branches, with a norm over all heads of queries and of keys (olmo2).
#include <utility>

#include "program/inductor/kernels.hpp"
#include "program/modules/transformers/compiled/layer.hpp"

namespace plimsoll::program {

using inductor::Value;

// ---- forward ----------------------------------------------------------------------------------------------------------

/// Queries and keys: each one kernel that sums over the row and writes what is normed and turned. The value between is fp32, or where the
/// scale is not kept, in part computed twice.
void CompiledLayer::normed_rotations() {
  const Dims query{s_.batch, s_.heads, s_.length, s_.head_dim}, key{s_.batch, s_.kv_heads, s_.length, s_.head_dim};
  Values query_reads{v_[kRawQuery], v_[kQueryScale], v_[kQNorm], v_[kCosine], v_[kSine]};
  Values key_reads{v_[kRawKey], v_[kKeyScale], v_[kKNorm], v_[kCosine], v_[kSine]};
  query_reads.push_back(g_.pointwise(query, DType::fp32, query_reads));
  key_reads.push_back(g_.pointwise(key, DType::fp32, key_reads));
  v_[kQuery] = g_.pointwise(query, s_.low, query_reads);
  v_[kKey] = g_.pointwise(key, s_.low, key_reads);
  for (const Value value : {query_reads.back(), v_[kQuery]}) query_statistics_.push_back(value);
  for (const Value value : {key_reads.back(), v_[kKey]}) key_statistics_.push_back(value);
  g_.fuse(query_statistics_);
  g_.fuse(key_statistics_);
  if (s_.heads == s_.kv_heads) g_.fuse({v_[kQuery], v_[kKey]});  // the same loops, and the tables in common
}

/// From the arguments to the MLP's products.
void CompiledLayer::compute_behind() {
  const auto narrow_input = [this] {
    if (s_.casts()) v_[kNormed] = g_.pointwise({s_.rows(), s_.hidden}, s_.low, {v_[kHidden]});
  };
  low_copy_and(narrow_input, kQ, s_.hidden, s_.q_width());
  const Value input = s_.casts() ? v_[kNormed] : v_[kHidden];
  v_[kRawQuery] = linear(kQ, input, s_.hidden, s_.q_width());
  head_statistics(kRawQuery, kQueryScale, 1);
  low_copy(kK, s_.hidden, s_.kv_width());
  v_[kRawKey] = linear(kK, input, s_.hidden, s_.kv_width());
  head_statistics(kRawKey, kKeyScale, 1);
  low_copy(kV, s_.hidden, s_.kv_width());
  v_[kValue] = linear(kV, input, s_.hidden, s_.kv_width());
  normed_rotations();
  flash(attention_inputs());
  low_copy(kOutput, s_.q_width(), s_.hidden);
  if (s_.checkpointed && !forward_only_) merge_heads();
  v_[kProjected] = linear(kOutput, merged(), s_.q_width(), s_.hidden);

  norm_statistics(kInput, {v_[kProjected]});
  const auto middle = [&] {
    v_[kMlpNormed] = g_.pointwise(stream_sizes(), s_.low, {v_[kHidden], v_[kProjected], v_[kInputScale], v_[kInputNorm]}, {v_[kProjected]});
    statistics_.push_back(v_[kMlpNormed]);
    g_.fuse(statistics_);
  };
  low_copy_and(middle, kGate, s_.hidden, s_.inner);
  v_[kGated] = linear(kGate, v_[kMlpNormed], s_.hidden, s_.inner);
  low_copy(kUp, s_.hidden, s_.inner);
  v_[kRaised] = linear(kUp, v_[kMlpNormed], s_.hidden, s_.inner);
  low_copy_and([this] { activate(); }, kDown, s_.inner, s_.hidden);
  v_[kBranch] = linear(kDown, v_[kActivated], s_.inner, s_.hidden);
  norm_statistics(kMlp, {v_[kBranch]});
}

Value CompiledLayer::forward_behind() {
  compute_behind();
  // The stream between the branches is what the MLP reads, or under autocast computed once more in fp32.
  Values reads{v_[kMlpNormed]};
  if (s_.casts()) reads = {v_[kHidden], v_[kProjected], v_[kInputScale], v_[kInputNorm]};
  for (const Value value : {v_[kBranch], v_[kMlpScale], v_[kMlpNorm]}) reads.push_back(value);
  const Value output = g_.pointwise(stream_sizes(), s_.wide, reads, {v_[kMlpNormed], v_[kBranch]});
  statistics_.push_back(output);
  g_.fuse(statistics_);
  return output;
}

// ---- backward ---------------------------------------------------------------------------------------------------------

/// A norm of a branch's result: the sums over rows for its weight; `kernel` has the sum over columns and, last, the branch's gradient.
CompiledLayer::RowSum CompiledLayer::norm_behind_backward(const Norm& norm, const Values& gradients, Value branch, Values& kernel) {
  Values for_weight = gradients;
  for (const Value value : {branch, v_[norm.scale]}) for_weight.push_back(value);
  const RowSum weight = sum_rows(for_weight, s_.hidden, DType::fp32);
  gradients_[norm.weight] = narrowed(weight.total, s_.hidden);
  Values for_row = gradients;
  for (const Value value : {branch, v_[norm.weight]}) for_row.push_back(value);
  kernel.push_back(g_.reduction(per_row(), DType::fp32, for_row));
  Values all = for_weight;
  for (const Value value : {v_[norm.weight], kernel.back()}) all.push_back(value);
  if (s_.casts() && s_.checkpointed && gradients.size() > 1) {  // too many operations for one expression
    kernel.push_back(g_.pointwise(stream_sizes(), DType::fp32, all));
    all = {kernel.back()};
  }
  kernel.push_back(g_.pointwise(stream_sizes(), s_.low, all, {branch}));
  return weight;
}

/// From the gradient of turned queries or keys to that of their product. `unturned` is what their norm gave.
Value CompiledLayer::row_norm_backward(CompiledSlot raw, CompiledSlot scale, CompiledSlot weight, Value turned, std::int64_t width,
                                       Value& unturned) {
  const Dims sizes{s_.batch, s_.length, width};
  unturned = g_.pointwise(sizes, DType::fp32, {turned, v_[kCosine], v_[kSine]});
  const RowSum sums = sum_rows({unturned, v_[raw], v_[scale]}, width, DType::fp32);
  gradients_[weight] = narrowed(sums.total, width);
  const Value row = g_.reduction(per_row(), DType::fp32, {unturned, v_[raw], v_[weight]});
  const Value result = g_.pointwise(sizes, s_.low, {unturned, row, v_[raw], v_[weight], v_[scale]}, {v_[raw]});
  if (inductor::mixes_reduction_orders(s_.rows(), width)) {
    g_.mix({row, result}, {sums.parts}, {sums.total}, s_.rows(), width);
  } else {
    g_.fuse({unturned, row, result});
  }
  return result;
}

std::array<Value, kArguments> CompiledLayer::backward_behind(Value incoming) {
  if (s_.checkpointed) compute_behind();
  Values mlp_kernel, attention_kernel;
  if (s_.checkpointed) mlp_kernel = statistics_;
  const RowSum mlp = norm_behind_backward(kMlp, {incoming}, v_[kBranch], mlp_kernel);
  g_.fuse(mlp_kernel);
  const Value down = linear_backward(kDown, mlp_kernel.back(), v_[kActivated], s_.inner, s_.hidden);
  const Values from_mlp = gates_backward(down, {});
  const RowSum attention = norm_behind_backward(kInput, {incoming, from_mlp[0], from_mlp[1]}, v_[kProjected], attention_kernel);
  if (inductor::mixes_reduction_orders(s_.rows(), s_.hidden)) {
    const auto across = attention_kernel.begin() + 2;  // what follows is a kernel of its own
    g_.mix({attention_kernel.begin(), across}, {mlp.parts, attention.parts}, {mlp.total, attention.total}, s_.rows(), s_.hidden);
  } else {
    g_.fuse({mlp.parts, attention.parts});
    g_.fuse(attention_kernel);
  }
  const Value attended = linear_backward(kOutput, attention_kernel.back(), merged(), s_.q_width(), s_.hidden);
  const std::vector<Value> flash = flash_backward(attended);
  const Value input = s_.casts() ? v_[kNormed] : v_[kHidden];
  const Value from_value = linear_backward(kV, flash[2], input, s_.hidden, s_.kv_width());
  Value unturned_key, unturned_query;
  const Value key = row_norm_backward(kRawKey, kKeyScale, kKNorm, flash[1], s_.kv_width(), unturned_key);
  const Value from_key = linear_backward(kK, key, input, s_.hidden, s_.kv_width());
  const Value query = row_norm_backward(kRawQuery, kQueryScale, kQNorm, flash[0], s_.q_width(), unturned_query);
  if (s_.heads == s_.kv_heads) g_.fuse({unturned_key, unturned_query});
  to_weight(kQ, query, input, s_.hidden, s_.q_width());
  const Value from_query = to_input(kQ, query, s_.hidden, s_.q_width());
  const Values branches{from_mlp[0], from_mlp[1], from_value, from_key, from_query};
  Values all = branches;
  all.push_back(incoming);
  gradients_[kHidden] = g_.pointwise(stream_sizes(), s_.wide, all, branches);
  widen(kQ, s_.hidden, s_.q_width());
  return gradients_;
}

}  // namespace plimsoll::program

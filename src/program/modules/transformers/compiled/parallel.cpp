#include "program/modules/transformers/compiled/parallel.hpp"

#include "program/inductor/kernels.hpp"

namespace plimsoll::program {

using inductor::Value;

namespace {

constexpr DType kFp32 = DType::fp32;

/// Values that read more buffers than this and are used more than once are buffers themselves (config.realize_reads_threshold).
constexpr std::size_t kMostReads = 4;

}  // namespace

// ---- forward ----------------------------------------------------------------------------------------------------------

/// Both norms standardize the layer's input: its statistics are taken once.
CompiledLayer::Norm CompiledParallelLayer::mlp_norm() const {
  if (s_.shared_norm) return kInput;
  return {kMlpNorm, kMlpNormBias, kInput.mean, kInput.scale, kMlpNormed, kMlpNormedOut};
}

void CompiledParallelLayer::attend() {
  project(kInput, {v_[kHidden]});
  CompiledLayer::attend();
  merge_heads();
}

/// The MLP's product up; what is before it stands there already where the norm is shared.
void CompiledParallelLayer::compute() {
  if (!v_[kInputMean].defined()) norm_statistics(kInput, {v_[kHidden]});
  const Norm norm = mlp_norm();
  low_copy_and([&] { apply_norm(norm, {v_[kHidden]}); }, kUp, s_.hidden, s_.inner);
  v_[kRaised] = linear(kUp, v_[norm.normed], s_.hidden, s_.inner);
  if (s_.checkpointed) v_[kMlpNormed] = v_[norm.normed];
}

Value CompiledParallelLayer::forward() {
  forward_only_ = s_.checkpointed;
  norm_statistics(kInput, {v_[kHidden]});
  attend();
  low_copy(kOutput, s_.q_width(), s_.hidden);
  const Value projected = linear(kOutput, v_[kMerged], s_.q_width(), s_.hidden);
  compute();
  low_copy_and([this] { activate(); }, kDown, s_.inner, s_.hidden);
  const Value branch = linear(kDown, v_[kActivated], s_.inner, s_.hidden);
  const Values branches = s_.mlp_first ? Values{branch, projected} : Values{projected, branch};
  return g_.pointwise(stream_sizes(), s_.wide, {v_[kHidden], projected, branch}, branches);
}

// ---- backward ---------------------------------------------------------------------------------------------------------

/// Through the output projection; a checkpointed layer computes its attention between the projection's two products.
Value CompiledParallelLayer::project_output_backward(Value gradient) {
  if (!s_.checkpointed) return linear_backward(kOutput, gradient, v_[kMerged], s_.q_width(), s_.hidden);
  low_weight(kOutput, s_.q_width(), s_.hidden);
  const Value attended = to_input(kOutput, gradient, s_.q_width(), s_.hidden);
  attend();
  to_weight(kOutput, gradient, v_[kMerged], s_.q_width(), s_.hidden);
  finish_biased(kOutput, gradient, s_.q_width(), s_.hidden);
  return attended;
}

/// The gradients of queries, keys and values side by side within each head.
Value CompiledParallelLayer::join(Value query, Value key, Value value) {
  Values reads{query, key, value};
  if (s_.casts()) {
    const Value turned_key = g_.pointwise(turned_sizes(s_.kv_heads), s_.low, {key, v_[kCosine], v_[kSine]});
    const Value turned_query = g_.pointwise(turned_sizes(s_.heads), s_.low, {query, v_[kCosine], v_[kSine]});
    g_.fuse({turned_key, turned_query});
    reads.insert(reads.end(), {turned_key, turned_query});
  } else {
    reads.insert(reads.end(), {v_[kCosine], v_[kSine]});
  }
  const Value heads = g_.pointwise({s_.batch, s_.heads, s_.length, 3 * s_.head_dim}, s_.low, reads);
  const Value rows = g_.pointwise({s_.rows(), qkv_width()}, s_.low, {heads});
  g_.fuse({heads, rows});
  return rows;
}

/// What the projections give to the norm's output.
CompiledLayer::Values CompiledParallelLayer::projections_backward(const Values& flash) {
  if (!s_.fused_qkv) return partial_rotary_backward(flash);
  return {linear_backward(kQkv, join(flash[0], flash[1], flash[2]), v_[kNormed], s_.hidden, qkv_width())};
}

/// A norm's sums: over columns, and over rows for its parameters. `stream` is what the former are taken of, where that is a buffer.
CompiledLayer::NormGradient CompiledParallelLayer::norm_sums(const Norm& norm, const Values& gradients) {
  NormGradient result;
  const Values stream{v_[kHidden], v_[norm.mean], v_[norm.scale]};
  Values weighted = gradients;
  weighted.push_back(v_[norm.weight]);
  if (weighted.size() > kMostReads) {
    result.stream = g_.pointwise(stream_sizes(), kFp32, weighted);
    weighted = {result.stream};
  }
  result.kernel.push_back(g_.reduction(per_row(), kFp32, weighted));
  result.kernel.push_back(g_.reduction(per_row(), kFp32, joined(weighted, stream)));
  result.weight = sum_rows(joined(gradients, stream), s_.hidden, kFp32);
  result.bias = sum_rows(gradients, s_.hidden, kFp32);
  gradients_[norm.weight] = narrowed(result.weight.total, s_.hidden);
  gradients_[norm.bias] = narrowed(result.bias.total, s_.hidden);
  return result;
}

/// The gradient of the layer's input from those of its norms' results.
std::array<Value, kArguments> CompiledParallelLayer::backward(Value incoming) {
  if (s_.shared_norm && !s_.checkpointed) v_[kMlpNormed] = v_[kNormed];
  const Value low = enter_branch(incoming);
  Values gradients = mlp_backward(low);
  const Values stream{v_[kHidden], v_[kInputMean], v_[kInputScale]};
  Values last = joined({incoming}, stream), replaced, tail;
  std::vector<NormGradient> norms;
  const auto add_norm = [&](const Norm& norm) {
    norms.push_back(norm_sums(norm, gradients));
    last = joined(last, norms.back().kernel);
    if (norms.back().stream.defined()) {
      last.push_back(norms.back().stream);
      replaced.push_back(norms.back().stream);
      return;
    }
    last = joined(joined(last, gradients), {v_[norm.weight]});
    replaced = joined(replaced, gradients);
  };
  if (!s_.shared_norm) {
    add_norm(mlp_norm());
    gradients.clear();
  }
  const bool cut = !s_.shared_norm && s_.checkpointed && !s_.casts();
  if (cut) {  // with unfinished statistics and conversions too many operations for one value (config.realize_opcount_threshold)
    tail.push_back(g_.pointwise(stream_sizes(), s_.wide, last));
    last = joined(tail, stream);
  }
  const Values replaced_by_middle = replaced;
  const Value down_parts = down_bias_.parts;
  const Value attended = project_output_backward(low);
  if (!s_.casts()) g_.fuse({down_parts, bias_parts_});
  gradients = joined(gradients, projections_backward(flash_backward(attended)));
  add_norm(kInput);
  gradients_[kHidden] = g_.pointwise(stream_sizes(), s_.wide, last, cut ? replaced_by_middle : replaced);
  tail.push_back(gradients_[kHidden]);
  fuse_norms(norms, tail);
  return gradients_;
}

/// The norms' sums over columns go with what is before and behind them, or with those over rows. The input's norm comes first, but between
/// its own sums over columns stand the MLP's.
void CompiledParallelLayer::fuse_norms(const std::vector<NormGradient>& norms, const Values& tail) {
  const NormGradient& input = norms.back();
  Values columns{input.kernel.front()}, parts, totals, scaled;
  for (const NormGradient& norm : norms) {
    scaled.push_back(norm.stream);
    if (&norm != &input) columns = joined(columns, norm.kernel);
  }
  columns.push_back(input.kernel.back());
  for (const auto sum : {&NormGradient::weight, &NormGradient::bias}) {
    for (const NormGradient& norm : norms) {
      parts.push_back((norm.*sum).parts);
      totals.push_back((norm.*sum).total);
    }
  }
  if (inductor::mixes_reduction_orders(s_.rows(), s_.hidden)) {
    g_.mix(columns, parts, totals, s_.rows(), s_.hidden);
    g_.order(joined(columns, parts));
    g_.fuse(tail);
  } else {
    g_.fuse(joined(joined(scaled, columns), tail));
    g_.fuse(parts);
    g_.order(parts);
  }
}

}  // namespace plimsoll::program

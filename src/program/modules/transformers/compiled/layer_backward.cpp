// The backward graph of a compiled layer.
#include <algorithm>
#include <utility>

#include "program/inductor/kernels.hpp"
#include "program/modules/transformers/compiled/layer.hpp"

namespace plimsoll::program {

using inductor::Value;

constexpr DType kFp32 = DType::fp32;

/// Gradients from several products of another part arrive as one.
static std::vector<Value> each_once(const std::vector<Value>& values) {
  std::vector<Value> once;
  for (const Value value : values)
    if (std::none_of(once.begin(), once.end(), [&](Value other) { return other.index == value.index; })) once.push_back(value);
  return once;
}

/// The gradient of a linear's weight [out, in], in the weight's type.
void CompiledLayer::to_weight(CompiledSlot weight, Value gradient, Value input, std::int64_t in, std::int64_t out) {
  gradients_[weight] = g_.product(s_.low, out, in, s_.rows(), {gradient, input}, inductor::Turned::left);
}

void CompiledLayer::widen(CompiledSlot weight, std::int64_t in, std::int64_t out) {
  if (s_.casts()) gradients_[weight] = g_.pointwise({out, in}, s_.wide, {gradients_[weight]});
}

Value CompiledLayer::to_input(CompiledSlot weight, Value gradient, std::int64_t in, std::int64_t out) {
  return g_.product(s_.low, s_.rows(), in, out, {gradient, v_[weight]}, s_.conv1d ? inductor::Turned::right : inductor::Turned::neither);
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
  enter(weight);
  if (!s_.biased[weight]) {
    to_weight(weight, gradient, input, in, out);
    const Value result = to_input(weight, gradient, in, out);
    widen(weight, in, out);
    return hand_back(source_of(weight), result);
  }
  const Value result = to_input(weight, gradient, in, out);
  to_weight(weight, gradient, input, in, out);
  finish_biased(weight, gradient, in, out);
  return hand_back(source_of(weight), result);
}

/// The sum that is the gradient of a linear's bias.
Value CompiledLayer::sum_for_bias(CompiledSlot weight, Value gradient, std::int64_t out) {
  // Under autocast a sum that was taken already is found again; else it would be a result twice.
  const bool known = s_.casts() && weight == kOutput && !s_.apart(kDown, kOutput) && gradient.index == down_gradient_.index;
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
CompiledLayer::NormGradient CompiledLayer::norm_backward(const Norm& norm, const Values& from_products, const Values& stream,
                                                         const Values& residual) {
  const Values gradients = each_once(from_products);
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
  if (s_.in_model) replaced.insert(replaced.end(), stream.begin(), stream.end());  // the graph's own
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
    if (raw == kRawKey || !s_.scaled_queries) return hand_back(raw, turned);
    turned = hand_back(kQuery, turned);
    enter(kQ);
    return g_.pointwise({s_.rows(), s_.q_width()}, s_.low, {turned}, {turned});  // the queries' scale
  }
  const Dims unturned{s_.batch, s_.length, heads, s_.head_dim};
  if (!s_.head_norms) return hand_back(raw, g_.pointwise(unturned, s_.low, {turned, v_[kCosine], v_[kSine]}), heads > 1);
  const Value unrotated = g_.pointwise({s_.batch, heads, s_.length, s_.head_dim}, s_.wide, {turned, v_[kCosine], v_[kSine]});
  const Value gradient = hand_back(raw == kRawQuery ? kQueryNormed : kKeyNormed, unrotated, heads > 1);
  enter(weight);
  const std::int64_t parts = inductor::outer_sum_splits(tape_, s_.rows() * heads, s_.head_dim);
  const Value partial = g_.reduction({parts, s_.head_dim}, kFp32, {gradient, v_[raw], v_[scale]});
  gradients_[weight] = g_.reduction({s_.head_dim}, s_.wide, {partial});
  const Value sum = g_.reduction({s_.batch, s_.length, heads, 1}, kFp32, {gradient, v_[raw], v_[weight], v_[scale]});
  const Value result = g_.pointwise(unturned, s_.low, {gradient, v_[raw], v_[weight], v_[scale], sum});
  g_.fuse({gradient, sum, result});  // of one part
  return result;
}

CompiledLayer::Values CompiledLayer::recompute() {
  compute();
  low_copy_and([this] { activate(); }, kDown, s_.inner, s_.hidden);
  recomputed_ = true;
  return joined(middle_stream(), {linear(kDown, v_[kActivated], s_.inner, s_.hidden)});
}

/// The MLP's backward; the gradients that its products give to the norm's output.
CompiledLayer::Values CompiledLayer::mlp_backward(Value incoming) {
  Value down;
  const bool biased = s_.biased[kDown], again = s_.checkpointed && !recomputed_;
  if (again) {
    if (biased) {
      low_weight(kDown, s_.inner, s_.hidden);
      down = to_input(kDown, incoming, s_.inner, s_.hidden);
    }
    compute();
    activate();
  }
  if (again && biased) {
    to_weight(kDown, incoming, v_[kActivated], s_.inner, s_.hidden);
    finish_biased(kDown, incoming, s_.inner, s_.hidden);
  } else if (again && s_.casts()) {
    to_weight(kDown, incoming, v_[kActivated], s_.inner, s_.hidden);
    low_copy(kDown, s_.hidden, s_.inner);
    down = to_input(kDown, incoming, s_.inner, s_.hidden);
    widen(kDown, s_.inner, s_.hidden);
  } else {
    down = linear_backward(kDown, incoming, v_[kActivated], s_.inner, s_.hidden);
  }
  enter(kUp);
  const Dims sizes{s_.batch, s_.length, s_.inner};
  Values kernel;
  if (again) kernel.push_back(v_[kActivated]);
  if (!s_.gated || s_.fused_gate_up) {
    const std::int64_t up = s_.fused_gate_up ? 2 * s_.inner : s_.inner;
    const Value input = s_.relu ? v_[kActivated] : v_[kRaised];
    Values replaced;
    if (!s_.fused_gate_up) replaced = s_.relu_squared ? Values{input, down} : Values{down, input};
    const Value raised = g_.pointwise({s_.batch, s_.length, up}, s_.low, {down, input}, replaced);
    kernel.push_back(raised);
    if (!s_.fused_gate_up) g_.fuse(kernel);
    return {linear_backward(kUp, raised, input_of(kUp, kMlp), s_.hidden, up)};
  }
  return gates_backward(down, std::move(kernel));
}

/// Through a gated MLP, from the gradient of its product down; `kernel` is what the gates' kernel makes beside their gradients.
CompiledLayer::Values CompiledLayer::gates_backward(Value down, Values kernel) {
  const Dims sizes{s_.batch, s_.length, s_.inner};
  if (s_.apart(kGate, kUp)) return gates_backward_apart(down);
  const Value raised = g_.pointwise(sizes, s_.low, {down, v_[kGated]}, {});
  const Value from_up = linear_backward(kUp, raised, input_of(kUp, kMlp), s_.hidden, s_.inner);
  const Value gated = g_.pointwise(sizes, s_.low, {down, v_[kGated], v_[kRaised]}, {v_[kRaised], down});
  const Value from_gate = linear_backward(kGate, gated, input_of(kGate, kMlp), s_.hidden, s_.inner);
  kernel.push_back(raised);
  kernel.push_back(gated);
  g_.fuse(kernel);
  return {from_up, from_gate};
}

/// The same where the gate's activation is in another part than the product of both.
CompiledLayer::Values CompiledLayer::gates_backward_apart(Value down) {
  const Dims sizes{s_.batch, s_.length, s_.inner};
  const Value activated = g_.pointwise(sizes, s_.low, {down, v_[kRaised]}, {v_[kRaised], down});
  const Value raised = g_.pointwise(sizes, s_.low, {down, v_[kGateActivated]}, {down});
  g_.fuse({activated, raised});
  const Value handed = hand_back(kGateActivated, activated);
  const Value from_up = linear_backward(kUp, raised, input_of(kUp, kMlp), s_.hidden, s_.inner);
  enter(kGate);
  const Value gated = g_.pointwise(sizes, s_.low, {handed, v_[kGated]}, {v_[kGated]});
  return {from_up, linear_backward(kGate, gated, input_of(kGate, kMlp), s_.hidden, s_.inner)};
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

/// From the gradients of values, queries and keys, told where they are read, or first of all where they are results of their part.
CompiledLayer::Values CompiledLayer::projections_backward(Value value, const std::function<Value()>& unturn_query,
                                                          const std::function<Value()>& unturn_key) {
  Value key, query;
  if (s_.apart(kK, kV)) key = unturn_key();
  enter(kV);
  if (s_.apart(kQ, kV)) query = unturn_query();
  const Value from_value = linear_backward(kV, value, input_of(kV, kInput), s_.hidden, s_.kv_width());
  if (!key.defined()) key = unturn_key();
  const Value from_key = linear_backward(kK, key, input_of(kK, kInput), s_.hidden, s_.kv_width());
  fuse_with_bias(kK, key, s_.kv_heads);
  enter(kV);
  if (!query.defined()) query = unturn_query();
  const Value from_query = linear_backward(kQ, query, input_of(kQ, kInput), s_.hidden, s_.q_width());
  fuse_with_bias(kQ, query, s_.heads);
  fuse_rotations(query, key);
  return {from_value, from_key, from_query};
}

/// From the residual stream's gradient to the gradients that the three projections give to the norm's output.
CompiledLayer::Values CompiledLayer::attention_backward(Value narrow) {
  const Value attended = linear_backward(kOutput, narrow, v_[kAttended], s_.q_width(), s_.hidden);
  enter(kV);
  const std::vector<Value> flash = flash_backward(attended);
  if (s_.fused_qkv) {
    return {linear_backward(kQkv, join_projections(flash), input_of(kQkv, kInput), s_.hidden, qkv_width())};
  }
  if (s_.masked) return masked_projections_backward(flash);
  const auto unturn_key = [&] { return heads_backward(kRawKey, kKeyScale, kKNorm, flash[1], s_.kv_heads); };
  const auto unturn_query = [&] { return heads_backward(kRawQuery, kQueryScale, kQNorm, flash[0], s_.heads); };
  return projections_backward(flash[2], unturn_query, unturn_key);
}

/// A norm whose input no other norm's kernel reads.
void CompiledLayer::fuse_norm(const NormGradient& norm) {
  Values parts{norm.weight.parts}, totals{norm.weight.total};
  if (s_.layer_norm) {
    parts.push_back(norm.bias.parts);
    totals.push_back(norm.bias.total);
  }
  if (!inductor::mixes_reduction_orders(s_.rows(), s_.hidden)) {
    g_.fuse(parts);
    g_.fuse(norm.kernel);
    return;
  }
  g_.mix(norm.kernel, parts, totals, s_.rows(), s_.hidden);
}

void CompiledLayer::fuse_norms(const NormGradient& mlp, const NormGradient& input) {
  if (s_.keeps_middle || s_.apart(kInputNorm, kMlpNorm)) {
    fuse_norm(mlp);
    fuse_norm(input);
    return;
  }
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
  const auto of_norms = [&](Value RowSum::* part) {
    Values values;
    for (const NormGradient* norm : {&mlp, &input}) {
      values.push_back(norm->weight.*part);
      if (s_.layer_norm) values.push_back(norm->bias.*part);
    }
    return values;
  };
  const Values sums = of_norms(&RowSum::parts);
  g_.fuse(mlp.kernel);
  if (!mixed) {
    g_.fuse(sums);
    g_.fuse(input.kernel);
    return;
  }
  // The sums over columns go with those over rows; what follows them is a kernel of its own.
  const auto columns = input.kernel.begin() + (s_.layer_norm ? 2 : 1);
  g_.mix({input.kernel.begin(), columns}, sums, of_norms(&RowSum::total), s_.rows(), s_.hidden);
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
Value CompiledLayer::enter_branch(Value incoming) {
  if (!s_.dropout) {
    if (!s_.casts() && !s_.scaled_branches) return incoming;
    const Value narrow = g_.pointwise({s_.rows(), s_.hidden}, s_.low, {incoming});
    if (s_.in_model) g_.fuse({incoming, narrow});
    return narrow;
  }
  if (!s_.checkpointed) return g_.pointwise(stream_sizes(), s_.low, {incoming, v_[kMlpMask]});
  seeds_ = g_.pointwise({2}, DType::int64, {});
  const Value random = g_.pointwise(stream_sizes(), kFp32, {seeds_});
  const Value masked = g_.pointwise(stream_sizes(), s_.low, {incoming, random});
  g_.fuse({random, masked});
  return masked;
}

std::array<Value, kArguments> CompiledLayer::backward(Value incoming) {
  enter(kDown);
  const Values from_mlp = mlp_backward(enter_branch(incoming));
  enter(kDown);
  const Values behind = residual_of(kMiddle, {incoming});
  enter(kMlpNorm);
  NormGradient mlp;
  Value middle;
  if (s_.dropout) {
    mlp = dropped_norm_backward(from_mlp.front(), incoming, middle);
  } else {
    mlp = norm_backward(kMlp, from_mlp, middle_stream(), behind);
    middle = mlp.stream;
    if (s_.casts() || s_.scaled_branches) {
      middle = g_.pointwise({s_.rows(), s_.hidden}, s_.low, mlp.residual);
      mlp.kernel.push_back(middle);
    }
  }
  const Values from_attention = attention_backward(middle);
  enter(kMlpNorm);
  const Values residual = s_.apart(kInputNorm, kMlpNorm) ? residual_of(kHidden, mlp.residual) : mlp.residual;
  enter(kInputNorm);
  const NormGradient input = norm_backward(kInput, from_attention, input_stream(), residual);
  fuse_norms(mlp, input);
  gradients_[kHidden] = input.stream;
  return gradients_;
}

}  // namespace plimsoll::program

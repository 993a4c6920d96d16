#include "program/modules/transformers/compiled/head.hpp"

#include "plimsoll/units.hpp"

namespace plimsoll::program {

using inductor::Graph;
using inductor::Value;

std::int64_t CompiledHead::columns() const { return round_up(vocabulary_, 16 / size_of(s_.low)); }

Value CompiledHead::forward() {
  const Values stream{v_[kHidden]};
  const auto copy_weight = [this] {
    if (s_.casts() || columns() != vocabulary_) v_[kOutput] = g_.pointwise({columns(), s_.hidden}, s_.low, {v_[kOutput]});
  };
  enter(kInputNorm);
  if (s_.layer_norm) {
    model_norm(kInputModelNorm, stream, stream);
  } else {
    norm_statistics(kInput, stream);
    hand_on(kInput, stream);
  }
  enter(kOutput);
  copy_weight();
  if (!s_.apart(kInputNorm, kOutput)) {
    apply_norm(kInput, stream);
  } else if (s_.casts()) {
    v_[kQkvInput] = g_.pointwise(stream_sizes(), s_.low, {v_[kNormedOut]});
  }
  return linear(kOutput, input_of(kOutput, kInput), s_.hidden, columns());
}

Value CompiledHead::normed_output() {
  if (!s_.casts()) return v_[kNormed];
  if (v_[kNormedOut].defined()) return v_[kNormedOut];
  const Value wide = g_.pointwise(stream_sizes(), s_.wide, {v_[kStandardized], v_[kInputNorm], v_[kInputNormBias]});
  g_.fuse({v_[kNormed], wide});
  return wide;
}

/// A padded product reads a copy of the logits' gradient for each of its factors.
Value CompiledHead::project_backward(Value logits) {
  Value for_input = logits_gradient_ = logits;
  if (columns() != vocabulary_) {
    logits_gradient_ = g_.pointwise({s_.rows(), columns()}, s_.low, {logits});
    for_input = g_.pointwise({s_.rows(), columns()}, s_.low, {logits});
    g_.fuse({logits_gradient_, for_input});
  }
  if (!tied_ || s_.casts()) to_weight(kOutput, logits_gradient_, input_of(kOutput, kInput), s_.hidden, columns());
  if (columns() != vocabulary_) v_[kOutput] = g_.pointwise({columns(), s_.hidden}, s_.low, {v_[kOutput]});
  const Value result = to_input(kOutput, for_input, s_.hidden, columns());
  if (!tied_) widen(kOutput, s_.hidden, vocabulary_);
  return hand_back(kNormedOut, result);
}

Value CompiledHead::tied_gradient(Value of_embedding) {
  const Dims sizes{vocabulary_, s_.hidden};
  if (s_.casts()) return g_.pointwise(sizes, s_.wide, {of_embedding, gradients_[kOutput]});
  const Value narrow = g_.pointwise(sizes, s_.wide, {of_embedding});
  return g_.product(s_.low, columns(), s_.hidden, s_.rows(), {logits_gradient_, v_[kNormed]}, inductor::Turned::left, narrow);
}

std::array<Value, kArguments> CompiledHead::backward_behind_norm(Value gradient, const Values& stream, Value of_output) {
  if (s_.layer_norm) {
    gradients_[kHidden] = model_norm_backward(kInputModelNorm, gradient, stream, of_output);
    return gradients_;
  }
  const NormGradient norm = norm_backward(kInput, {gradient}, stream, {});
  fuse_norm(norm);
  gradients_[kHidden] = norm.stream;
  return gradients_;
}

Value compiled_loss(Graph& graph, std::int64_t batch, std::int64_t length, Value labels, CompiledLossValues& loss) {
  const Dims rows{batch * length, 1}, scalar{};
  loss[kShiftedLabels] = graph.pointwise({inductor::padded_elements({batch, length + 1}, DType::int64)}, DType::int64, {labels});

  loss[kMaximum] = graph.reduction(rows, DType::fp32, {loss[kLogits]});
  const Value sum = graph.reduction(rows, DType::fp32, {loss[kLogits]});
  loss[kLogSum] = graph.pointwise(rows, DType::fp32, {sum});
  graph.fuse({loss[kMaximum], sum, loss[kLogSum]});

  graph.skip_name();  // the labels' count before its cast
  loss[kLabelCount] = graph.reduction(scalar, DType::fp32, {loss[kShiftedLabels]});
  const Value total =
      graph.reduction(scalar, DType::fp32, {loss[kShiftedLabels], loss[kLogits], loss[kMaximum], loss[kLogSum], loss[kLabelCount]});
  const Value mean = graph.pointwise(scalar, DType::fp32, {total, loss[kLabelCount]});
  graph.fuse({loss[kLabelCount], total, mean});
  return mean;
}

Value compiled_loss_backward(Graph& graph, std::int64_t rows, std::int64_t vocabulary, DType type, Value loss_gradient,
                             Value logits_gradient, const CompiledLossValues& loss) {
  std::vector<Value> reads{loss_gradient, logits_gradient};
  reads.insert(reads.end(), loss.begin(), loss.end());
  const Value row = graph.reduction({rows, 1}, DType::fp32, reads);
  reads.push_back(row);
  const Value logits = graph.pointwise({rows, vocabulary}, type, reads);
  graph.fuse({row, logits});
  return logits;
}

}  // namespace plimsoll::program

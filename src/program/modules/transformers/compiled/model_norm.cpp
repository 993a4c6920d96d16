// LayerNorms in the graph of a whole model, which makes their inputs: under autocast the partitioner keeps the input standardized, in fp32,
// and one factor of a row; else the input itself with its row's mean and scale.
#include "program/modules/transformers/compiled/layer.hpp"

namespace plimsoll::program {

using inductor::Value;

constexpr DType kFp32 = DType::fp32;

/// The norm of what `stream` adds up to, by the kernel that also makes the values of `kernel`.
void CompiledLayer::model_norm(const ModelNorm& of, const Values& stream, Values kernel) {
  const Norm& norm = of.norm;
  const Value mean = g_.reduction(per_row(), kFp32, stream), variance = g_.reduction(per_row(), kFp32, stream);
  g_.skip_name();  // var_mean's count
  Values input = joined(stream, {mean, variance});
  kernel.insert(kernel.end(), {mean, variance});
  if (s_.standardizes(norm.weight)) {
    v_[of.standard] = g_.pointwise(stream_sizes(), kFp32, input, stream);
    input = {v_[of.standard]};
    kernel.push_back(v_[of.standard]);
  } else {
    v_[norm.mean] = mean;
  }
  v_[norm.scale] = g_.pointwise(per_row(), kFp32, {variance});
  Values last = joined(input, {v_[norm.scale], v_[norm.weight], v_[norm.bias]});
  if (is_read_apart(norm)) {
    v_[norm.out] = g_.pointwise(stream_sizes(), s_.wide, last);
    kernel.push_back(v_[norm.out]);
    last = {v_[norm.out]};
  }
  v_[norm.normed] = is_read_apart(norm) && !s_.casts() ? v_[norm.out] : g_.pointwise(stream_sizes(), s_.low, last);
  kernel.insert(kernel.end(), {v_[norm.scale], v_[norm.normed]});
  g_.fuse(kernel);
}

/// Its backward: the gradient of the stream, in the place of `residual`.
Value CompiledLayer::model_norm_backward(const ModelNorm& of, Value gradient, const Values& stream, Value residual) {
  const Norm& norm = of.norm;
  Values input = joined(stream, {v_[norm.mean], v_[norm.scale]});
  const bool standardized = s_.standardizes(norm.weight);
  if (standardized) input = {v_[of.standard], v_[norm.scale]};
  const Value first = g_.reduction(per_row(), kFp32, {gradient, v_[norm.weight]});
  const Value second = g_.reduction(per_row(), kFp32, joined({gradient, v_[norm.weight]}, input));
  NormGradient result;
  result.weight = sum_rows(joined({gradient}, standardized ? Values{v_[of.standard]} : input), s_.hidden, kFp32);
  gradients_[norm.weight] = narrowed(result.weight.total, s_.hidden);
  result.bias = sum_rows({gradient}, s_.hidden, kFp32);
  gradients_[norm.bias] = narrowed(result.bias.total, s_.hidden);
  result.stream = g_.pointwise(stream_sizes(), s_.wide, joined({residual, gradient, v_[norm.weight], first, second}, input),
                               {residual, v_[of.standard]});
  result.kernel = {first, second, result.stream};
  fuse_norm(result);
  return result.stream;
}

}  // namespace plimsoll::program

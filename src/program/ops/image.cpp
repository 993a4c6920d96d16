/// Operators of images beside convolutions, without cuDNN: aten/src/ATen/native/cuda/Normalization.cu, DilatedMaxPool2d.cu, AveragePool2d.cu.
#include "program/ops/ops.hpp"

namespace plimsoll::program {

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, bool has_statistics) {
  Op op("batch_norm", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  Tensor y = empty_like(x);
  const Tensor mean = op.output({x.size(1)}, DType::fp32), deviation = op.output({x.size(1)}, DType::fp32);
  const std::int64_t channels = x.size(1), places = x.elements() / channels;
  row_wise(RowWise::Function::group_norm, channels, places, {&x}, {&mean, &deviation});  // statistics
  if (!has_statistics && !x.tape().cudnn) in_place(deviation, {&deviation});
  if (weight)
    pointwise(Pointwise::Form::fused, {&x, &mean, &deviation, &weight, &bias}, {&y});
  else
    pointwise(Pointwise::Form::fused, {&x, &mean, &deviation}, {&y});
  op.save_output(mean);
  op.save_output(deviation);
  return op.done(y, [channels, places](BackwardCall& b) {  // batch_norm_backward_cuda_template: one kernel
    const Tensor input = b.saved(0), scale = b.saved(1);
    const Tensor grad = contiguous(b.grad());
    Tensor gradient = empty_like(input), weight_gradient, bias_gradient;
    if (scale) {
      weight_gradient = b.tape.empty(scale.sizes(), scale.dtype());
      bias_gradient = b.tape.empty(scale.sizes(), scale.dtype());
    }
    row_wise(RowWise::Function::group_norm_backward, channels, places, {&grad, &input}, {&gradient});
    b.give(0, std::move(gradient));
    if (!scale) return;
    b.give(1, std::move(weight_gradient));
    b.give(2, std::move(bias_gradient));
  });
}

namespace {

Dims pooled_sizes(const Tensor& x, const PoolArguments& arguments) {
  Dims sizes = x.sizes();
  for (int i = 2; i < 4; ++i) sizes[i] = (x.size(i) + 2 * arguments.padding - arguments.kernel) / arguments.stride + 1;
  return sizes;
}

}  // namespace

Tensor max_pool(const Tensor& x, const PoolArguments& arguments) {
  Op op("max_pool2d", {&x});
  op.save(x);
  Tensor y = op.output(pooled_sizes(x, arguments), x.dtype());
  const Tensor indices = op.output(y.sizes(), DType::int64);
  pointwise(Pointwise::Form::fused, {&x}, {&y, &indices});
  op.save_output(indices);
  return op.done(y, [](BackwardCall& b) {  // max_pool2d_with_indices_backward
    const Tensor input = b.saved(0);
    const Tensor grad = contiguous(b.grad());
    Tensor gradient = zeros(b.tape, input.sizes(), input.dtype());
    pointwise(Pointwise::Form::fused, {&grad, &b.saved(1)}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

Tensor average_pool(const Tensor& x, const PoolArguments& arguments) {
  Op op("avg_pool2d", {&x});
  op.save(x);
  Tensor y = op.output(pooled_sizes(x, arguments), x.dtype());
  pointwise(Pointwise::Form::fused, {&x}, {&y});
  return op.done(y, [](BackwardCall& b) {
    const Tensor input = b.saved(0);
    const Tensor grad = contiguous(b.grad());
    Tensor gradient = b.tape.empty(input.sizes(), input.dtype());
    pointwise(Pointwise::Form::fused, {&grad}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

}  // namespace plimsoll::program

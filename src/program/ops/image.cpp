/// Operators of images without cuDNN: aten/src/ATen/native/cuda/ConvolutionMM2d.cu, DepthwiseConv2d.cu, Normalization.cu,
/// DilatedMaxPool2d.cu, AveragePool2d.cu.
#include "plimsoll/error.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

struct Unfolding {
  Unfolding(const Tensor& x, const Tensor& weight, const ConvolutionArguments& arguments)
      : batch(x.size(0)),
        channels(x.size(1)),
        image_places(x.size(2) * x.size(3)),
        in(weight.size(1)),
        out(weight.size(0)),
        kernel(weight.size(2)),
        height(extent(x.size(2), weight.size(2), arguments)),
        width(extent(x.size(3), weight.size(3), arguments)),
        unfolds(weight.size(2) != 1 || weight.size(3) != 1 || arguments.stride != 1 || arguments.padding != 0),
        inner(in * weight.size(2) * weight.size(3)) {}

  static std::int64_t extent(std::int64_t size, std::int64_t kernel, const ConvolutionArguments& arguments) {
    return (size + 2 * arguments.padding - kernel) / arguments.stride + 1;
  }
  std::int64_t places() const { return height * width; }
  Dims output() const { return {batch, out, height, width}; }
  /// conv_depthwise2d: every channel of the image a group of its own.
  Convolution by_channel(Convolution::Pass pass, DType type) const {
    return {pass, type, batch, channels, out, channels, image_places, places(), kernel * kernel, false};
  }
  /// One image's windows as columns.
  Tensor columns(Tape& tape, DType type) const { return tape.empty({inner, places()}, type, Category::workspace); }

  std::int64_t batch, channels, image_places, in, out, kernel, height, width;
  bool unfolds;  ///< a window of one place that moves by one needs no columns
  std::int64_t inner;
};

/// im2col, or col2im: a kernel that copies windows, an element of the columns each.
void unfold(Tape& tape, const Unfolding& c, DType type) {
  const Operand image{c.channels * c.image_places, type, Walk::strided}, columns{c.inner * c.places(), type, Walk::contiguous};
  tape.kernel({Gather{Gather::Function::permute, columns.elements, Operands({image}, {columns})}});
}

Matrix row_major(std::int64_t rows, std::int64_t columns, DType type) { return {rows, columns, 1, columns, false, type}; }

/// `columns`: one image's windows, shared by both gradients.
void input_gradient(BackwardCall& b, const Unfolding& c, const Tensor& input, Tensor& columns) {
  Tensor gradient = b.tape.empty(input.sizes(), input.dtype());
  columns = c.columns(b.tape, input.dtype());
  for (std::int64_t image = 0; image < c.batch; ++image) {
    const DType type = input.dtype();
    gemm(b.tape, row_major(c.out, c.inner, type).t(), row_major(c.out, c.places(), type), row_major(c.inner, c.places(), type));
    unfold(b.tape, c, type);  // col2im
  }
  b.give(0, std::move(gradient));
}

void weight_gradient(BackwardCall& b, const Unfolding& c, const Tensor& input, Tensor& columns) {
  Tensor gradient = b.tape.empty(b.saved(1).sizes(), input.dtype());
  if (c.unfolds && !columns) columns = c.columns(b.tape, input.dtype());
  for (std::int64_t image = 0; image < c.batch; ++image) {
    const DType type = input.dtype();
    if (c.unfolds) unfold(b.tape, c, type);
    gemm(b.tape, row_major(c.out, c.places(), type), row_major(c.inner, c.places(), type).t(), row_major(c.out, c.inner, type),
         {.accumulates = true});
  }
  b.give(1, std::move(gradient));
}

Tensor unfolded_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Unfolding& c) {
  Op op("conv2d", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  Tensor y = op.output(c.output(), x.dtype());
  {
    const Tensor columns = c.unfolds ? c.columns(op.tape(), x.dtype()) : Tensor();
    if (bias) {  // the products are added to it
      const Tensor channels = op.tape().view(bias, {1, c.out, 1, 1}, {0, 1, 0, 0});
      in_place(y, {&channels});
    }
    for (std::int64_t image = 0; image < c.batch; ++image) {
      if (c.unfolds) unfold(op.tape(), c, x.dtype());
      gemm(op.tape(), row_major(c.out, c.inner, x.dtype()), row_major(c.inner, c.places(), x.dtype()),
           row_major(c.out, c.places(), x.dtype()), {.accumulates = bias.defined()});
    }
  }
  return op.done(y, [c](BackwardCall& b) {  // slow_conv2d_backward: input, bias, weight
    const Tensor& input = b.saved(0);
    const Tensor grad = contiguous(b.grad());
    Tensor columns;
    if (b.needs(0)) input_gradient(b, c, input, columns);
    if (b.needs(2)) b.give(2, sum(grad, {0, 2, 3}, false));
    if (b.needs(1)) weight_gradient(b, c, input, columns);
  });
}

Tensor depthwise_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Unfolding& c) {
  Op op("conv_depthwise2d", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  Tensor y = op.output(c.output(), x.dtype());
  op.tape().kernel({c.by_channel(Convolution::Pass::forward, x.dtype())});
  return op.done(y, [c](BackwardCall& b) {
    const Tensor& input = b.saved(0);
    const Tensor grad = contiguous(b.grad());
    const auto gradient_of = [&](std::size_t saved, Convolution::Pass pass) {
      Tensor gradient = b.tape.empty(b.saved(saved).sizes(), input.dtype());
      b.tape.kernel({c.by_channel(pass, input.dtype())});
      b.give(saved, std::move(gradient));
    };
    if (b.needs(0)) gradient_of(0, Convolution::Pass::input_gradient);
    if (b.needs(1)) gradient_of(1, Convolution::Pass::weight_gradient);
    if (b.needs(2)) b.give(2, sum(grad, {0, 2, 3}, false));
  });
}

}  // namespace

Tensor convolution(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in, const ConvolutionArguments& arguments) {
  const Tensor bias = bias_in ? autocast_low(bias_in) : Tensor();
  const Tensor weight = autocast_low(weight_in), x = autocast_low(x_in);
  const Tensor packed = contiguous(x);
  const Unfolding c(packed, weight, arguments);
  if (arguments.groups == 1) return unfolded_convolution(packed, weight, bias, c);
  if (arguments.groups == x.size(1) && weight.size(0) % x.size(1) == 0) return depthwise_convolution(packed, weight, bias, c);
  refuse("convolutions in groups of several channels are not modelled", {}, "groups 1, or as many as input channels");
}

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Op op("batch_norm", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  Tensor y = empty_like(x);
  const Tensor mean = op.output({x.size(1)}, DType::fp32), deviation = op.output({x.size(1)}, DType::fp32);
  const std::int64_t channels = x.size(1), places = x.elements() / channels;
  row_wise(RowWise::Function::group_norm, channels, places, {&x}, {&mean, &deviation});  // statistics
  pointwise(Pointwise::Form::fused, {&x, &mean, &deviation, &weight, &bias}, {&y});
  op.save_output(mean);
  op.save_output(deviation);
  return op.done(y, [channels, places](BackwardCall& b) {  // batch_norm_backward_cuda_template: one kernel
    const Tensor input = b.saved(0), scale = b.saved(1);
    const Tensor grad = contiguous(b.grad());
    Tensor gradient = empty_like(input), weight_gradient = b.tape.empty(scale.sizes(), scale.dtype()),
           bias_gradient = b.tape.empty(scale.sizes(), scale.dtype());
    row_wise(RowWise::Function::group_norm_backward, channels, places, {&grad, &input}, {&gradient});
    b.give(0, std::move(gradient));
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

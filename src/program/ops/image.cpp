/// Operators of images without cuDNN: aten/src/ATen/native/cuda/ConvolutionMM2d.cu, DepthwiseConv2d.cu, Normalization.cu,
/// DilatedMaxPool2d.cu, AveragePool2d.cu.
#include "plimsoll/error.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

struct Convolution {
  Convolution(const Tensor& x, const Tensor& weight, const ConvolutionArguments& arguments)
      : batch(x.size(0)),
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
  /// One image's windows as columns.
  Tensor columns(Tape& tape, DType type) const { return tape.empty({inner, places()}, type, Category::workspace); }

  std::int64_t batch, in, out, kernel, height, width;
  bool unfolds;  ///< a window of one place that moves by one needs no columns
  std::int64_t inner;
};

void unfold(Tape& tape, const Convolution& c, DType type) {
  const std::int64_t bytes = c.inner * c.places() * size_of(type);
  launch(tape, KernelKind::convolution, type, bytes, bytes);
}

/// `columns`: one image's windows, shared by both gradients.
void input_gradient(BackwardCall& b, const Convolution& c, const Tensor& input, Tensor& columns) {
  Tensor gradient = b.tape.empty(input.sizes(), input.dtype());
  columns = c.columns(b.tape, input.dtype());
  for (std::int64_t image = 0; image < c.batch; ++image) {
    gemm(b.tape, input.dtype(), c.inner, c.places(), c.out);
    unfold(b.tape, c, input.dtype());  // col2im
  }
  b.give(0, std::move(gradient));
}

void weight_gradient(BackwardCall& b, const Convolution& c, const Tensor& input, Tensor& columns) {
  Tensor gradient = b.tape.empty(b.saved(1).sizes(), input.dtype());
  if (c.unfolds && !columns) columns = c.columns(b.tape, input.dtype());
  for (std::int64_t image = 0; image < c.batch; ++image) {
    if (c.unfolds) unfold(b.tape, c, input.dtype());
    gemm(b.tape, input.dtype(), c.out, c.inner, c.places());
  }
  b.give(1, std::move(gradient));
}

Tensor unfolded_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Convolution& c) {
  Op op("conv2d", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  Tensor y = op.output(c.output(), x.dtype());
  {
    const Tensor columns = c.unfolds ? c.columns(op.tape(), x.dtype()) : Tensor();
    if (bias) launch(op.tape(), KernelKind::elementwise, x.dtype(), bias.bytes(), y.bytes());  // the products are added to it
    for (std::int64_t image = 0; image < c.batch; ++image) {
      if (c.unfolds) unfold(op.tape(), c, x.dtype());
      gemm(op.tape(), x.dtype(), c.out, c.places(), c.inner);
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

Tensor depthwise_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Convolution& c) {
  Op op("conv_depthwise2d", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  Tensor y = op.output(c.output(), x.dtype());
  const double flops = 2.0 * static_cast<double>(y.elements()) * static_cast<double>(c.inner);
  launch(op.tape(), KernelKind::convolution, x.dtype(), x.bytes(), y.bytes(), flops);
  return op.done(y, [flops](BackwardCall& b) {
    const Tensor& input = b.saved(0);
    const Tensor grad = contiguous(b.grad());
    const auto gradient_of = [&](std::size_t saved, std::size_t to) {
      Tensor gradient = b.tape.empty(b.saved(saved).sizes(), input.dtype());
      launch(b.tape, KernelKind::convolution, input.dtype(), input.bytes() + grad.bytes(), gradient.bytes(), flops);
      b.give(to, std::move(gradient));
    };
    if (b.needs(0)) gradient_of(0, 0);
    if (b.needs(1)) gradient_of(1, 1);
    if (b.needs(2)) b.give(2, sum(grad, {0, 2, 3}, false));
  });
}

}  // namespace

Tensor convolution(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in, const ConvolutionArguments& arguments) {
  const Tensor bias = bias_in ? autocast_low(bias_in) : Tensor();
  const Tensor weight = autocast_low(weight_in), x = autocast_low(x_in);
  const Tensor packed = contiguous(x);
  const Convolution c(packed, weight, arguments);
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
  launch(op.tape(), KernelKind::reduction, x.dtype(), x.bytes(), mean.bytes() + deviation.bytes(), 4.0 * static_cast<double>(x.elements()));
  launch(op.tape(), KernelKind::elementwise, x.dtype(), x.bytes(), y.bytes(), 2.0 * static_cast<double>(x.elements()));
  op.save_output(mean);
  op.save_output(deviation);
  return op.done(y, [](BackwardCall& b) {  // batch_norm_backward_cuda_template: one kernel
    const Tensor input = b.saved(0), scale = b.saved(1);
    const Tensor grad = contiguous(b.grad());
    Tensor gradient = empty_like(input), weight_gradient = b.tape.empty(scale.sizes(), scale.dtype()),
           bias_gradient = b.tape.empty(scale.sizes(), scale.dtype());
    launch(b.tape, KernelKind::reduction, input.dtype(), 2 * input.bytes(), input.bytes(), 8.0 * static_cast<double>(input.elements()));
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
  launch(op.tape(), KernelKind::reduction, x.dtype(), x.bytes(), y.bytes() + indices.bytes());
  op.save_output(indices);
  return op.done(y, [](BackwardCall& b) {  // max_pool2d_with_indices_backward
    const Tensor input = b.saved(0);
    const Tensor grad = contiguous(b.grad());
    Tensor gradient = zeros(b.tape, input.sizes(), input.dtype());
    launch(b.tape, KernelKind::reduction, input.dtype(), grad.bytes() + b.saved(1).bytes(), gradient.bytes());
    b.give(0, std::move(gradient));
  });
}

Tensor average_pool(const Tensor& x, const PoolArguments& arguments) {
  Op op("avg_pool2d", {&x});
  op.save(x);
  Tensor y = op.output(pooled_sizes(x, arguments), x.dtype());
  launch(op.tape(), KernelKind::reduction, x.dtype(), x.bytes(), y.bytes());
  return op.done(y, [](BackwardCall& b) {
    const Tensor input = b.saved(0);
    const Tensor grad = contiguous(b.grad());
    Tensor gradient = b.tape.empty(input.sizes(), input.dtype());
    launch(b.tape, KernelKind::reduction, input.dtype(), grad.bytes(), gradient.bytes());
    b.give(0, std::move(gradient));
  });
}

}  // namespace plimsoll::program

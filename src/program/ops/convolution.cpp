/// Convolutions of images: cuDNN's (aten/src/ATen/native/cudnn/ConvShared.cpp), and those of ATen without it
/// (aten/src/ATen/native/cuda/ConvolutionMM2d.cu, DepthwiseConv2d.cu).
#include "plimsoll/error.hpp"
#include "program/convolution_workspace.hpp"
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
        groups(arguments.groups),
        unfolds(weight.size(2) != 1 || weight.size(3) != 1 || arguments.stride != 1 || arguments.padding != 0),
        inner(in * weight.size(2) * weight.size(3)) {}

  static std::int64_t extent(std::int64_t size, std::int64_t kernel, const ConvolutionArguments& arguments) {
    return (size + 2 * arguments.padding - kernel) / arguments.stride + 1;
  }
  std::int64_t places() const { return height * width; }
  Dims output() const { return {batch, out, height, width}; }
  Convolution pass(Convolution::Pass pass, DType type, bool channels_last) const {
    return {pass, type, batch, channels, out, groups, image_places, places(), kernel * kernel, channels_last};
  }
  /// One image's windows as columns.
  Tensor columns(Tape& tape, DType type) const { return tape.empty({inner, places()}, type, Category::workspace); }

  std::int64_t batch, channels, image_places, in, out, kernel, height, width, groups;
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
  op.tape().kernel({c.pass(Convolution::Pass::forward, x.dtype(), false)});
  return op.done(y, [c](BackwardCall& b) {
    const Tensor& input = b.saved(0);
    const Tensor grad = contiguous(b.grad());
    const auto gradient_of = [&](std::size_t saved, Convolution::Pass pass) {
      Tensor gradient = b.tape.empty(b.saved(saved).sizes(), input.dtype());
      b.tape.kernel({c.pass(pass, input.dtype(), false)});
      b.give(saved, std::move(gradient));
    };
    if (b.needs(0)) gradient_of(0, Convolution::Pass::input_gradient);
    if (b.needs(1)) gradient_of(1, Convolution::Pass::weight_gradient);
    if (b.needs(2)) b.give(2, sum(grad, {0, 2, 3}, false));
  });
}

// ---- cuDNN, on AMD MIOpen ----------------------------------------------------------------------------------------------------------

/// A pass of the library's: its workspace, in one block, and the kernels around the one that multiplies.
class LibraryPass {
 public:
  LibraryPass(Tape& tape, const Unfolding& c, Convolution::Pass pass, DType type)
      : copies(convolution_copies({c.batch, c.channels, c.image_places, c.in, c.kernel * c.kernel, c.out, c.places(), c.groups, size_of(type)},
                                  pass == Convolution::Pass::weight_gradient, tape.multiprocessors)),
        tape_(tape),
        kernel_(c.pass(pass, type, true)),
        workspace_(tape.empty({copies.bytes()}, DType::uint8, Category::workspace)) {}

  /// nchwToNhwcKernel; what fills channels up is zero.
  void pack(const ChannelsLastCopy& copy) const {
    if (copy.filled != copy.elements) set_to_zero(copy.filled * copies.element_bytes);
    gather(tape_, Gather::Function::permute, copy.filled, {{copy.elements, kernel_.type, Walk::strided}}, {packed(copy.filled, kernel_.type)});
  }
  void multiply() const {
    if (copies.sums > 0) set_to_zero(copies.bytes_of_sums());
    tape_.kernel({kernel_});
    if (copies.sums > 0)  // ReduceSplitK
      pointwise(tape_, Pointwise::Form::fused, {packed(copies.sums, DType::fp32)}, {packed(copies.filter.filled, kernel_.type)});
  }
  /// nhwcToNchwKernel.
  void unpack(const ChannelsLastCopy& copy) const {
    gather(tape_, Gather::Function::permute, copy.elements, {{copy.elements, kernel_.type, Walk::strided}},
           {packed(copy.elements, kernel_.type)});
  }

  const ConvolutionCopies copies;

 private:
  void set_to_zero(std::int64_t bytes) const { tape_.copy({Copy::Direction::set, bytes}, tape_.stream); }

  Tape& tape_;
  Convolution kernel_;
  Tensor workspace_;
};

/// raw_cudnn_convolution_backward_input.
Tensor library_input_gradient(BackwardCall& b, const Unfolding& c, DType type) {
  Tensor gradient = b.tape.empty(b.saved(0).sizes(), type);
  const LibraryPass pass(b.tape, c, Convolution::Pass::input_gradient, type);
  pass.pack(pass.copies.result);
  pass.pack(pass.copies.filter);
  pass.multiply();
  pass.unpack(pass.copies.image);
  return gradient;
}

/// raw_cudnn_convolution_backward_weight.
Tensor library_weight_gradient(BackwardCall& b, const Unfolding& c, DType type) {
  Tensor gradient = b.tape.empty(b.saved(1).sizes(), type);
  const LibraryPass pass(b.tape, c, Convolution::Pass::weight_gradient, type);
  pass.pack(pass.copies.image);
  pass.pack(pass.copies.result);
  pass.multiply();
  pass.unpack(pass.copies.filter);
  return gradient;
}

Tensor library_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Unfolding& c) {
  Op op("cudnn_convolution", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  Tensor y = op.output(c.output(), x.dtype());
  {
    const LibraryPass pass(op.tape(), c, Convolution::Pass::forward, x.dtype());
    pass.pack(pass.copies.image);
    pass.pack(pass.copies.filter);
    pass.multiply();
    pass.unpack(pass.copies.result);
  }
  if (bias) {  // output.add_(reshape_bias(dim, bias))
    const Tensor channels = op.tape().view(bias, {1, c.out, 1, 1}, {0, 1, 0, 0});
    in_place(y, {&y, &channels});
  }
  return op.done(y, [c](BackwardCall& b) {  // cudnn_convolution_backward: input, weight; then the bias's sum
    const Tensor grad = contiguous(b.grad());
    if (b.needs(0)) b.give(0, library_input_gradient(b, c, grad.dtype()));
    if (b.needs(1)) b.give(1, library_weight_gradient(b, c, grad.dtype()));
    if (b.needs(2)) b.give(2, sum(grad, {0, 2, 3}, false));
  });
}

}  // namespace

Tensor convolution(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in, const ConvolutionArguments& arguments) {
  const Tensor bias = bias_in ? autocast_low(bias_in) : Tensor();
  const Tensor weight = autocast_low(weight_in), x = autocast_low(x_in);
  const Tensor packed = contiguous(x);
  const Unfolding c(packed, weight, arguments);
  const bool by_channel = arguments.groups == x.size(1) && weight.size(0) % x.size(1) == 0 && arguments.groups > 1;
  if (by_channel) return depthwise_convolution(packed, weight, bias, c);  // use_cudnn_depthwise: not for contiguous images
  if (x.tape().cudnn) return library_convolution(packed, weight, bias, c);
  if (arguments.groups == 1) return unfolded_convolution(packed, weight, bias, c);
  refuse("convolutions in groups of several channels are not modelled without cuDNN", {}, "groups 1, or as many as input channels");
}

}  // namespace plimsoll::program

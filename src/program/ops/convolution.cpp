/// Convolutions of images: cuDNN's (aten/src/ATen/native/cudnn/ConvShared.cpp), and those of ATen without it
/// (aten/src/ATen/native/cuda/ConvolutionMM2d.cu, DepthwiseConv2d.cu).
#include "program/ops/convolution.hpp"

#include "plimsoll/error.hpp"
#include "program/convolution_workspace.hpp"
#include "program/ops/memory_format.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

struct Unfolding {
  Unfolding(const Tensor& x, const Tensor& weight, const ConvolutionGeometry& geometry)
      : batch(x.size(0)), channels(x.size(1)), in(weight.size(1)), out(weight.size(0)), groups(geometry.groups), sizes{batch, out} {
    for (int i = 0; i + 2 < x.rank(); ++i) {
      const std::int64_t window = weight.size(i + 2);
      image_places *= x.size(i + 2);
      kernel *= window;
      sizes.push_back(convolved_extent(x.size(i + 2), window, geometry.stride[i], geometry.padding[i], geometry.dilation[i]));
      result_places *= sizes[i + 2];
      unfolds = unfolds || window != 1 || geometry.stride[i] != 1 || geometry.padding[i] != 0;
      beside.push_back(i + 2);
    }
    inner = in * kernel;
  }

  std::int64_t places() const { return result_places; }
  const Dims& output() const { return sizes; }
  Convolution pass(Convolution::Pass pass, DType type, bool channels_last) const {
    return {pass, type, batch, channels, out, groups, image_places, places(), kernel, channels_last};
  }
  /// One image's windows as columns.
  Tensor columns(Tape& tape, DType type) const { return tape.empty({inner, places()}, type, Category::workspace); }

  /// A bias as the result sees it.
  Tensor by_channel(const Tensor& bias) const {
    Dims shape{1, out}, strides{0, 1};
    for (int i = 2; i < sizes.rank(); ++i) {
      shape.push_back(1);
      strides.push_back(0);
    }
    return bias.tape().view(bias, shape, strides);
  }
  /// Dimensions over which a bias's gradient is summed.
  std::vector<int> summed() const {
    std::vector<int> dimensions{0};
    dimensions.insert(dimensions.end(), beside.begin(), beside.end());
    return dimensions;
  }

  std::int64_t batch, channels, in, out, groups, image_places = 1, kernel = 1, result_places = 1, inner = 1;
  bool unfolds = false;  ///< a window of one place that moves by one needs no columns
  Dims sizes;
  std::vector<int> beside;  ///< dimensions of places
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
  const Tensor packed_input = contiguous(x.detach());
  Tensor y = op.output(c.output(), x.dtype());
  {
    const Tensor columns = c.unfolds ? c.columns(op.tape(), x.dtype()) : Tensor();
    if (bias) {  // the products are added to it
      const Tensor channels = c.by_channel(bias);
      in_place(y, {&channels});
    }
    for (std::int64_t image = 0; image < c.batch; ++image) {
      if (c.unfolds) unfold(op.tape(), c, x.dtype());
      gemm(op.tape(), row_major(c.out, c.inner, x.dtype()), row_major(c.inner, c.places(), x.dtype()),
           row_major(c.out, c.places(), x.dtype()), {.accumulates = bias.defined()});
    }
  }
  return op.done(y, [c](BackwardCall& b) {  // slow_conv2d_backward: input, bias, weight
    const Tensor input = contiguous(b.saved(0));
    const Tensor grad = contiguous(b.grad());
    Tensor columns;
    if (b.needs(0)) input_gradient(b, c, input, columns);
    if (b.needs(2)) b.give(2, sum(grad, c.summed(), false));
    if (b.needs(1)) weight_gradient(b, c, input, columns);
  });
}

/// Launches one pass; where its result lies is the caller's.
using Pass = void (*)(Tape& tape, const Unfolding& c, Convolution::Pass pass, DType type);

/// The gradients of the image, the weight and, a sum of the result's, the bias. `last`: all lie with their channels as neighbours.
void passes_backward(BackwardCall& b, const Unfolding& c, Pass run, bool last) {
  const Tensor grad = in_format(b.grad(), last), input = in_format(b.saved(0), last), weight = in_format(b.saved(1), last);
  const auto gradient_of = [&](std::size_t saved, Convolution::Pass pass) {
    Tensor gradient = empty_image(b.tape, b.saved(saved).sizes(), grad.dtype(), last);
    run(b.tape, c, pass, grad.dtype());
    b.give(saved, std::move(gradient));
  };
  if (b.needs(0)) gradient_of(0, Convolution::Pass::input_gradient);
  if (b.needs(1)) gradient_of(1, Convolution::Pass::weight_gradient);
  if (b.needs(2)) b.give(2, sum(grad, c.summed(), false));
}

void run_by_channel(Tape& tape, const Unfolding& c, Convolution::Pass pass, DType type) { tape.kernel({c.pass(pass, type, false)}); }

Tensor depthwise_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Unfolding& c) {
  Op op("conv_depthwise2d", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  const Tensor packed_input = contiguous(x.detach());
  Tensor y = op.output(c.output(), x.dtype());
  run_by_channel(op.tape(), c, Convolution::Pass::forward, x.dtype());
  return op.done(y, [c](BackwardCall& b) { passes_backward(b, c, run_by_channel, false); });
}

// ---- cuDNN, on AMD MIOpen ----------------------------------------------------------------------------------------------------------

void set_to_zero(Tape& tape, std::int64_t bytes) { tape.copy({Copy::Direction::set, bytes}, tape.stream); }

/// nchwToNhwcKernel; what fills channels up is zero.
void pack(Tape& tape, const ChannelsLastCopy& copy, DType type) {
  if (copy.filled != copy.elements) set_to_zero(tape, copy.filled * size_of(type));
  gather(tape, Gather::Function::permute, copy.filled, {{copy.elements, type, Walk::strided}}, {packed(copy.filled, type)});
}

/// nhwcToNchwKernel.
void unpack(Tape& tape, const ChannelsLastCopy& copy, DType type) {
  gather(tape, Gather::Function::permute, copy.elements, {{copy.elements, type, Walk::strided}}, {packed(copy.elements, type)});
}

/// raw_cudnn_convolution_forward_out, …_backward_input_out, …_backward_weight_out: of image, filter and result two are read, the third is
/// made.
void run_library(Tape& tape, const Unfolding& c, Convolution::Pass pass, DType type) {
  const bool forward = pass == Convolution::Pass::forward, weight_gradient = pass == Convolution::Pass::weight_gradient;
  const ConvolutionCopies copies =
      convolution_copies({c.batch, c.channels, c.image_places, c.in, c.kernel, c.out, c.places(), c.groups, size_of(type)}, weight_gradient,
                         tape.device.units);
  const Tensor workspace = tape.empty({copies.bytes()}, DType::uint8, Category::workspace);
  pack(tape, forward || weight_gradient ? copies.image : copies.result, type);
  pack(tape, weight_gradient ? copies.result : copies.filter, type);
  if (copies.sums > 0) set_to_zero(tape, copies.bytes_of_sums());
  tape.kernel({c.pass(pass, type, true)});
  if (copies.sums > 0)  // ReduceSplitK
    pointwise(tape, Pointwise::Form::fused, {packed(copies.sums, DType::fp32)}, {packed(copies.filter.filled, type)});
  unpack(tape, forward ? copies.result : weight_gradient ? copies.filter : copies.image, type);
}

/// The same of images that lie as the matrix units want them: nothing is packed.
void run_library_as_it_lies(Tape& tape, const Unfolding& c, Convolution::Pass pass, DType type) { tape.kernel({c.pass(pass, type, true)}); }

Tensor library_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Unfolding& c, bool last) {
  Op op("cudnn_convolution", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  const Tensor packed_input = in_format(x.detach(), last), packed_weight = in_format(weight.detach(), last);
  Tensor y = op.output(c.output(), x.dtype());
  if (last) lay_channels_last(y);
  const bool lies_so = last || (c.image_places == 1 && c.channels > 1);  // channels of one place are neighbours in either format
  const Pass run = lies_so ? run_library_as_it_lies : run_library;
  run(op.tape(), c, Convolution::Pass::forward, x.dtype());
  if (bias) {  // output.add_(reshape_bias(dim, bias))
    const Tensor channels = c.by_channel(bias);
    in_place(y, {&y, &channels});
  }
  return op.done(y, [c, run, last](BackwardCall& b) { passes_backward(b, c, run, last); });
}

}  // namespace

Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionArguments& arguments) {
  const std::int64_t stride = arguments.stride, padding = arguments.padding;
  return convolution(x, weight, bias, {{stride, stride}, {padding, padding}, {1, 1}, arguments.groups});
}

Tensor convolution(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in, const ConvolutionGeometry& geometry) {
  const Tensor bias = bias_in ? autocast_low(bias_in) : Tensor();
  const Tensor weight = autocast_low(weight_in), x = autocast_low(x_in);
  const Unfolding c(x, weight, geometry);
  const bool by_channel = geometry.groups == x.size(1) && weight.size(0) % x.size(1) == 0 && geometry.groups > 1;
  // cudnn_conv_use_channels_last: the image or the filter lies so; MIOpen's is off by itself. use_cudnn_depthwise: for such images alone.
  const bool last = x.tape().cudnn && !x.tape().device.amd() && (has_channels_last(x) || has_channels_last(weight));
  if (by_channel && !last) return depthwise_convolution(x, weight, bias, c);
  if (x.tape().cudnn) return library_convolution(x, weight, bias, c, last);
  const bool plain = geometry.dilation == Dims{1, 1} || geometry.dilation == Dims{1};
  if (geometry.groups == 1 && plain) return unfolded_convolution(x, weight, bias, c);
  refuse("convolutions in groups of several channels, of volumes or of windows with gaps are not modelled without cuDNN", {},
         "groups 1, or as many as input channels");
}

}  // namespace plimsoll::program

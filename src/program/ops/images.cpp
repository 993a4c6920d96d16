// aten/src/ATen/native/cuda/Normalization.cu, group_norm_kernel.cu, UpSample*.cu, *Pool*.cu, GridSampler.cu, Im2Col.cu of PyTorch 2.15.
#include "program/ops/images.hpp"

#include "program/ops/memory_format.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

Tensor group_norm(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in, std::int64_t groups) {
  const Tensor bias = bias_in ? autocast_fp32(bias_in) : Tensor(), weight = weight_in ? autocast_fp32(weight_in) : Tensor();
  const Tensor own = autocast_fp32(x_in);
  const bool last = has_channels_last(own);
  const Tensor x = last ? own : contiguous(own);
  Op op("group_norm", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  Tape& tape = op.tape();
  const std::int64_t batch = x.size(0), channels = x.size(1), rows = batch * groups, columns = x.elements() / rows;
  Tensor y = empty_image(tape, x.sizes(), x.dtype(), last);
  const Tensor mean = op.output({batch, groups}, x.dtype()), rstd = op.output({batch, groups}, x.dtype());
  row_wise(RowWise::Function::group_norm, rows, columns, {&x}, {&mean, &rstd});  // RowwiseMomentsCUDAKernel
  const DType wide = DType::fp32;
  if (weight || bias) {  // ComputeFusedParamsCUDAKernel: scale and shift of each channel
    const Tensor scale = tape.empty({batch, channels}, wide, Category::workspace),
                 shift = tape.empty({batch, channels}, wide, Category::workspace);
    pointwise(Pointwise::Form::fused, {&mean, &rstd}, {&scale, &shift});
    pointwise(Pointwise::Form::fused, {&x}, {&y});
  } else {
    pointwise(Pointwise::Form::fused, {&x}, {&y});
  }
  op.save_output(mean);
  op.save_output(rstd);
  return op.done(y, [rows, columns, batch, channels, groups, last](BackwardCall& b) {  // GroupNormBackwardKernelImplInternal
    const Tensor input = b.saved(0), scale = b.saved(1), means = b.saved(2);
    const Tensor grad = in_format(b.grad(), last);
    Tensor gradient, weight_gradient, bias_gradient;
    if (b.needs(0)) gradient = empty_image(b.tape, input.sizes(), input.dtype(), last);
    if (b.needs(1)) weight_gradient = b.tape.empty({channels}, scale.dtype());
    if (b.needs(2)) bias_gradient = b.tape.empty({channels}, scale.dtype());
    {
      const Tensor ds = b.tape.empty({batch, channels}, DType::fp32, Category::workspace);
      const Tensor db = b.tape.empty({batch, channels}, DType::fp32, Category::workspace);
      row_wise(RowWise::Function::group_norm_backward, rows, columns, {&grad, &input}, {&ds, &db});
      if (b.needs(0)) {
        Tensor factor;
        if (scale) {
          factor = b.tape.empty({batch, channels}, DType::fp32, Category::workspace);
          pointwise(factor, {&ds});
        }
        const Tensor c2 = b.tape.empty({batch, groups}, DType::fp32, Category::workspace);
        const Tensor c3 = b.tape.empty({batch, groups}, DType::fp32, Category::workspace);
        row_wise(RowWise::Function::group_norm_backward, rows, channels / groups, {&ds, &db}, {&c2, &c3});
        pointwise(Pointwise::Form::fused, {&grad, &input}, {&gradient});
      }
      if (b.needs(1) || b.needs(2)) row_wise(RowWise::Function::norm_weight_backward, batch, channels, {&ds, &db}, {&means, &means});
    }
    if (b.needs(0)) b.give(0, std::move(gradient));
    if (b.needs(1)) b.give(1, std::move(weight_gradient));
    if (b.needs(2)) b.give(2, std::move(bias_gradient));
  });
}

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, bool has_statistics) {
  Op op("batch_norm", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  Tensor y = empty_like(x);
  const Tensor mean = op.output({x.size(1)}, DType::fp32), deviation = op.output({x.size(1)}, DType::fp32);
  const std::int64_t channels = x.size(1), places = x.elements() / channels;
  row_wise(RowWise::Function::group_norm, channels, places, {&x}, {&mean, &deviation});  // statistics
  if (!has_statistics && !x.tape().cudnn) in_place(deviation, {&deviation});
  if (bias)
    pointwise(Pointwise::Form::fused, {&x, &mean, &deviation, &weight, &bias}, {&y});
  else if (weight)
    pointwise(Pointwise::Form::fused, {&x, &mean, &deviation, &weight}, {&y});
  else
    pointwise(Pointwise::Form::fused, {&x, &mean, &deviation}, {&y});
  op.save_output(mean);
  op.save_output(deviation);
  const bool has_bias = bias.defined();
  return op.done(y, [channels, places, has_bias](BackwardCall& b) {  // batch_norm_backward_cuda_template: one kernel
    const Tensor input = b.saved(0), scale = b.saved(1);
    const Tensor grad = in_format(b.grad(), has_channels_last(input));
    Tensor gradient = empty_like(input), weight_gradient, bias_gradient;
    if (scale) weight_gradient = b.tape.empty(scale.sizes(), scale.dtype());
    if (has_bias) bias_gradient = b.tape.empty(scale.sizes(), scale.dtype());
    row_wise(RowWise::Function::group_norm_backward, channels, places, {&grad, &input}, {&gradient});
    b.give(0, std::move(gradient));
    if (scale) b.give(1, std::move(weight_gradient));
    if (has_bias) b.give(2, std::move(bias_gradient));
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

Tensor batch_norm_by(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean, const Tensor& variance) {
  Op op("batch_norm", {&x, &weight, &bias});
  op.save(x);
  op.save(weight);
  op.save(mean);
  op.save(variance);
  Tensor y = empty_like(x);
  pointwise(Pointwise::Form::fused, {&x}, {&y});
  const std::int64_t channels = x.size(1), places = x.elements() / channels;
  return op.done(y, [channels, places](BackwardCall& b) {
    const Tensor input = b.saved(0), scale = b.saved(1);
    const Tensor grad = in_format(b.grad(), has_channels_last(input));
    Tensor gradient = empty_like(input);
    Tensor weight_gradient, bias_gradient;
    if (b.needs(1)) weight_gradient = b.tape.empty(scale.sizes(), scale.dtype());
    if (b.needs(2)) bias_gradient = b.tape.empty(scale.sizes(), scale.dtype());
    row_wise(RowWise::Function::group_norm_backward, channels, places, {&grad, &input}, {&gradient});
    b.give(0, std::move(gradient));
    if (b.needs(1)) b.give(1, std::move(weight_gradient));
    if (b.needs(2)) b.give(2, std::move(bias_gradient));
  });
}

namespace {

Dims with_places(const Tensor& x, const Dims& places) {
  Dims sizes = x.sizes();
  for (int i = 0; i < places.rank(); ++i) sizes[x.rank() - places.rank() + i] = places[i];
  return sizes;
}

}  // namespace

Tensor pooled(const Tensor& x_in, const Dims& places, Pooling kind) {
  const bool last = has_channels_last(x_in);
  const Tensor x = last ? x_in : contiguous(x_in);
  const bool with_indices = kind == Pooling::maximum || kind == Pooling::adaptive_maximum;
  Op op(with_indices ? "max_pool" : "avg_pool", {&x});
  op.save(x);
  Tensor y = empty_image(op.tape(), with_places(x, places), x.dtype(), last);
  Tensor indices;
  if (with_indices) {
    indices = empty_image(op.tape(), y.sizes(), DType::int64, last);
    pointwise(Pointwise::Form::fused, {&x}, {&y, &indices});
    op.save_output(indices);
  } else {
    pointwise(Pointwise::Form::fused, {&x}, {&y});
  }
  const bool zeroed = kind != Pooling::average;
  return op.done(y, [zeroed, last](BackwardCall& b) {
    const Tensor input = b.saved(0);
    const Tensor grad = in_format(b.grad(), last);
    Tensor gradient = zeroed ? zeros(b.tape, input.sizes(), input.dtype()) : b.tape.empty(input.sizes(), input.dtype());
    if (last) lay_channels_last(gradient);
    pointwise(Pointwise::Form::fused, {&grad}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

Tensor resized(const Tensor& x_in, const Dims& places, const char* name) {
  const Tensor x = autocast_fp32(x_in);
  Op op(name, {&x});
  const bool last = has_channels_last(x);
  Tensor y = empty_image(op.tape(), with_places(x, places), x.dtype(), last);
  const Tensor packed_input = last ? x.detach() : contiguous(x.detach());
  pointwise(Pointwise::Form::fused, {&packed_input}, {&y});
  const bool adds = std::string_view(name) != "upsample_nearest";
  return op.done(y, [before = x.sizes(), adds, last](BackwardCall& b) {
    const Tensor grad = in_format(b.grad(), last);
    Tensor gradient = adds ? zeros(b.tape, before, grad.dtype()) : b.tape.empty(before, grad.dtype());
    if (last) lay_channels_last(gradient);
    pointwise(Pointwise::Form::fused, {&grad}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

Tensor grid_sample(const Tensor& x, const Tensor& grid) {
  Op op("grid_sampler", {&x, &grid});
  op.save(x);
  op.save(grid);
  Tensor y = op.output({x.size(0), x.size(1), grid.size(1), grid.size(2)}, x.dtype());
  gather(Gather::Function::index, y.elements(), {&x, &grid}, {&y});
  return op.done(y, [](BackwardCall& b) {
    const Tensor input = b.saved(0), places = b.saved(1);
    Tensor gradient, grid_gradient;
    if (b.needs(0)) gradient = zeros(b.tape, input.sizes(), input.dtype());
    grid_gradient = b.tape.empty(places.sizes(), places.dtype());
    gather(Gather::Function::scatter, b.grad().elements(), {&b.grad(), &places}, {&grid_gradient});
    if (b.needs(0)) b.give(0, std::move(gradient));
    if (b.needs(1)) b.give(1, std::move(grid_gradient));
  });
}

namespace {

/// im2col: image by image.
Tensor columns_of(const Tensor& x, const Dims& sizes) {
  Tensor y = x.tape().empty(sizes, x.dtype());
  const std::int64_t batch = x.size(0);
  for (std::int64_t image = 0; image < batch; ++image)
    gather(x.tape(), Gather::Function::permute, y.elements() / batch, {{x.elements() / batch, x.dtype(), Walk::strided}},
           {packed(y.elements() / batch, y.dtype())});
  return y;
}

/// col2im: one kernel over the batch.
Tensor images_of(const Tensor& columns, const Dims& sizes) {
  Tensor y = columns.tape().empty(sizes, columns.dtype());
  gather(Gather::Function::permute, y.elements(), {&columns}, {&y});
  return y;
}

}  // namespace

Tensor image_to_columns(const Tensor& x_in, std::int64_t window, std::int64_t places) {
  const Tensor x = contiguous(x_in);
  Op op("im2col", {&x});
  Tensor y = columns_of(x, {x.size(0), x.size(1) * window, places});
  return op.done(y, [before = x.sizes()](BackwardCall& b) { b.give(0, images_of(contiguous(b.grad()), before)); });
}

Tensor columns_to_image(const Tensor& x_in, const Dims& sizes) {
  const Tensor x = contiguous(x_in);
  Op op("col2im", {&x});
  Tensor y = images_of(x, sizes);
  return op.done(y, [before = x.sizes()](BackwardCall& b) { b.give(0, columns_of(contiguous(b.grad()), before)); });
}

namespace {

/// view, permute, reshape: what both shuffles are (PixelShuffle.cpp, math_pixel_shuffle).
Tensor shuffled(const Tensor& x, const Dims& split, const Dims& order, const Dims& sizes) {
  return reshape(permute(reshape(x, split), order), sizes);
}

}  // namespace

Tensor pixel_shuffle(const Tensor& x, std::int64_t factor) {
  const std::int64_t batch = x.size(0), channels = x.size(1) / (factor * factor), height = x.size(2), width = x.size(3);
  return shuffled(x, {batch, channels, factor, factor, height, width}, {0, 1, 4, 2, 5, 3},
                  {batch, channels, height * factor, width * factor});
}

Tensor pixel_unshuffle(const Tensor& x, std::int64_t factor) {
  const std::int64_t batch = x.size(0), channels = x.size(1), height = x.size(2) / factor, width = x.size(3) / factor;
  return shuffled(x, {batch, channels, height, factor, width, factor}, {0, 1, 3, 5, 2, 4},
                  {batch, channels * factor * factor, height, width});
}

}  // namespace plimsoll::program

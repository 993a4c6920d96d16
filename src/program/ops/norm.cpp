/// F.rms_norm: aten::_fused_rms_norm (aten/src/ATen/native/cuda/layer_norm_kernel.cu); weight norm: cuda/WeightNorm.cu.
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

std::int64_t rows_of(const Tensor& x) { return x.elements() / x.size(-1); }

/// x as the kernel reads it: itself where it is row-major, else a copy.
Tensor packed_copy(const Tensor& x) {
  if (x.is_contiguous()) return x;
  Tensor packed = x.tape().empty(x.sizes(), x.dtype());
  in_place(packed, {&x});
  return packed;
}

}  // namespace

Tensor rms_norm(const Tensor& x_in, const Tensor& weight) {
  const Tensor x = autocast_fp32(x_in);
  Op op("rms_norm", {&x, &weight});
  op.save(x);
  op.save(weight);
  Tensor y, rstd;
  {
    const Tensor packed = packed_copy(x);
    y = op.output(x.sizes(), x.dtype());
    Dims rows = x.sizes();
    rows[-1] = 1;
    rstd = op.tape().empty(rows, DType::fp32);
    row_wise(RowWise::Function::rms_norm, rows_of(x), x.size(-1), {&packed, &weight}, {&y, &rstd});
  }
  op.save_output(rstd);
  return op.done(y, [](BackwardCall& b) {  // _fused_rms_norm_backward: dX, then dgamma
    const Tensor input = b.saved(0), scale = b.saved(1);
    const Tensor packed_input = packed_copy(input);
    if (b.needs(0)) {
      Tensor gradient = b.tape.empty(input.sizes(), input.dtype());
      row_wise(RowWise::Function::rms_norm_backward, rows_of(input), input.size(-1), {&b.grad(), &packed_input, &scale}, {&gradient});
      b.give(0, std::move(gradient));
    }
    if (b.needs(1)) b.give(1, b.tape.empty(scale.sizes(), scale.dtype()));
    const Tensor packed_gradient = packed_copy(b.grad());
    if (b.needs(1)) {
      if (rows_of(input) > 64 * 1024 && input.size(-1) / 32 < b.tape.device.units / 2) {  // many short rows: partial sums of 32 rows each
        const Tensor partial = b.tape.empty({ceil_div(rows_of(input), 32), input.size(-1)}, scale.dtype());
        b.give(1, reduce(partial, {true, false}, false, scale.dtype()));
      }
      row_wise(RowWise::Function::norm_weight_backward, rows_of(input), input.size(-1), {&packed_gradient, &packed_input}, {&scale});
    }
  });
}

Tensor weight_norm(const Tensor& v_in, const Tensor& g_in) {
  const Tensor v = contiguous(v_in), g = contiguous(g_in);
  Op op("weight_norm", {&v, &g});
  op.save(v);
  op.save(g);
  const DType type_of_norms = g.dtype() == DType::fp16 ? DType::fp32 : g.dtype();
  Tensor y = op.output(v.sizes(), v.dtype());
  const Tensor norms = op.tape().empty(g.sizes(), type_of_norms);
  row_wise(RowWise::Function::rms_norm, g.elements(), v.elements() / g.elements(), {&v, &g}, {&y, &norms});
  op.save_output(norms);
  return op.done(y, [](BackwardCall& b) {  // _weight_norm_interface_backward
    const Tensor direction = b.saved(0), length = b.saved(1), kept = b.saved(2), grad = contiguous(b.grad());
    Tensor of_direction = b.tape.empty(direction.sizes(), direction.dtype()), of_length = b.tape.empty(length.sizes(), length.dtype());
    row_wise(RowWise::Function::rms_norm_backward, length.elements(), direction.elements() / length.elements(),
             {&grad, &direction, &length, &kept}, {&of_direction, &of_length});
    b.give(0, std::move(of_direction));
    b.give(1, std::move(of_length));
  });
}

}  // namespace plimsoll::program

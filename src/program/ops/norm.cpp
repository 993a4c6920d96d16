/// F.rms_norm: aten::_fused_rms_norm (aten/src/ATen/native/cuda/layer_norm_kernel.cu).
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

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
    launch(op.tape(), KernelKind::reduction, x.dtype(), x.bytes(), y.bytes() + rstd.bytes(), 4.0 * static_cast<double>(x.elements()));
  }
  op.save_output(rstd);
  return op.done(y, [](BackwardCall& b) {  // _fused_rms_norm_backward: dX, then dgamma
    const Tensor input = b.saved(0), scale = b.saved(1);
    const Tensor packed_input = packed_copy(input);
    if (b.needs(0)) {
      Tensor gradient = b.tape.empty(input.sizes(), input.dtype());
      launch(b.tape, KernelKind::reduction, input.dtype(), 2 * input.bytes(), input.bytes(), 6.0 * static_cast<double>(input.elements()));
      b.give(0, std::move(gradient));
    }
    if (b.needs(1)) b.give(1, b.tape.empty(scale.sizes(), scale.dtype()));
    const Tensor packed_gradient = packed_copy(b.grad());
    if (b.needs(1)) {
      const std::int64_t rows = input.elements() / input.size(-1);
      if (rows > 64 * 1024 && input.size(-1) / 32 < b.tape.multiprocessors / 2) {  // many short rows: partial sums of 32 rows each
        const Tensor partial = b.tape.empty({ceil_div(rows, 32), input.size(-1)}, scale.dtype());
        b.give(1, reduce(partial, {true, false}, false, scale.dtype()));
      }
      launch(b.tape, KernelKind::reduction, input.dtype(), 2 * input.bytes(), scale.bytes(), 2.0 * static_cast<double>(input.elements()));
    }
  });
}

}  // namespace plimsoll::program

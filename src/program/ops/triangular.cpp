/// aten/src/ATen/native/BatchLinearAlgebra.cpp (linalg_solve_triangular_out), cuda/linalg/BatchLinearAlgebra.cpp and
/// torch/csrc/autograd/FunctionsManual.cpp (linalg_solve_triangular_backward) of PyTorch 2.15.
#include "program/ops/triangular.hpp"

#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::program {

namespace {

/// triangular_solve_kernel: small systems, or many, in one call over arrays of pointers (apply_triangular_solve_batched), a few large ones
/// one by one. b is written over.
void solve_in_place(const Tensor& a, const Tensor& b) {
  constexpr std::int64_t kFew = 8, kLarge = 64;
  const std::int64_t n = a.size(-1), columns = b.size(-1), batch = a.elements() / (n * n);
  Tape& tape = b.tape();
  const double flops = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(columns);
  if (batch <= kFew && n >= kLarge) {
    for (std::int64_t i = 0; i < batch; ++i) {
      const Tensor system = tape.view(a, {n, n}, {n, 1}), sides = tape.view(b, {n, columns}, {columns, 1});
      multiply(a.dtype(), flops, {&system, &sides}, {&sides});
    }
    return;
  }
  const Tensor systems = tape.empty({batch}, DType::int64, Category::workspace);
  pointwise(systems, {});
  const Tensor sides = tape.empty({batch}, DType::int64, Category::workspace);
  pointwise(sides, {});
  multiply(a.dtype(), flops * static_cast<double>(batch), {&a, &b}, {&b});
}

/// A matrix that lies row by row or column by column is taken as it lies.
Tensor ready(const Tensor& a) {
  const bool lies_packed = a.is_contiguous() || transpose(a, a.rank() - 2, a.rank() - 1).is_contiguous();
  return lies_packed ? a : contiguous(a);
}

/// The result lies column by column, as BLAS has matrices.
Tensor solved(const Tensor& a, const Tensor& b) {
  Tensor x = b.tape().empty(b.sizes(), b.dtype());
  x.impl()->strides[-1] = b.size(-2);
  x.impl()->strides[-2] = 1;
  copy_into(x, b);
  const Tensor system = ready(a);
  solve_in_place(system, x);
  return x;
}

}  // namespace

Tensor solve_triangular(const Tensor& a, const Tensor& b_in) {
  Op op("linalg_solve_triangular", {&a, &b_in});
  op.save_if(op.needs(0) || op.needs(1), a);
  Tensor x;
  {
    const GradMode frozen(op.tape(), false);
    x = solved(a, b_in);
  }
  op.save_output_if(op.needs(0), x);
  return op.done(x, [](BackwardCall& b) {
    const Tensor system = b.saved(0), result = b.saved(1);
    const GradMode frozen(b.tape, false);  // what is made on the way is of no graph
    const Tensor turned = transpose(system, system.rank() - 2, system.rank() - 1);
    Tensor of_sides = solved(turned, b.grad());
    if (b.needs(0)) {  // -G_B X^H, of which a triangle is left
      const Tensor negative = negate(matmul(of_sides, transpose(result, result.rank() - 2, result.rank() - 1)));
      b.give(0, triangle(negative));
    }
    if (b.needs(1)) b.give(1, std::move(of_sides));
  });
}

}  // namespace plimsoll::program

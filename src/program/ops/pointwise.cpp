// Their backward passes: tools/autograd/derivatives.yaml of PyTorch 2.15.
#include "program/ops/pointwise.hpp"

#include "program/ops/ops.hpp"

namespace plimsoll::program {

Tensor compare(const Tensor& a, const Tensor& b, DType type) {
  if (!b) return Op("compare", {&a}).elementwise({&a}, type);
  return Op("compare", {&a, &b}).elementwise({&a, &b}, type);
}

Tensor reciprocal(const Tensor& x_in) {
  const Tensor x = autocast_fp32(x_in);
  Op op("reciprocal", {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  op.save_output(y);
  return op.done(y, [](BackwardCall& b) {  // -grad * (result * result)
    const Tensor result = b.saved(0);
    const Tensor negated = elementwise(b.tape, {&b.grad()}, result.dtype());
    const Tensor squared = elementwise(b.tape, {&result}, result.dtype());
    b.give(0, elementwise(b.tape, {&negated, &squared}, result.dtype()));
  });
}

Tensor exponential(const Tensor& x_in) {
  const Tensor x = autocast_fp32(x_in);
  Op op("exp", {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  op.save_output(y);
  return op.done(y, [](BackwardCall& b) {  // grad * result
    const Tensor result = b.saved(0);
    b.give(0, elementwise(b.tape, {&b.grad(), &result}, result.dtype()));
  });
}

Tensor logarithm(const Tensor& x_in) {
  const Tensor x = autocast_fp32(x_in);
  Op op("log", {&x});
  op.save(x);
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) {  // grad.div(self)
    const Tensor self = b.saved(0);
    b.give(0, elementwise(b.tape, {&b.grad(), &self}, self.dtype()));
  });
}

Tensor square_root(const Tensor& x) {
  Op op("sqrt", {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  op.save_output(y);
  return op.done(y, [](BackwardCall& b) {  // grad / (2 * result)
    const Tensor result = b.saved(0);
    const Tensor doubled = elementwise(b.tape, {&result}, result.dtype());
    b.give(0, elementwise(b.tape, {&b.grad(), &doubled}, result.dtype()));
  });
}

Tensor absolute(const Tensor& x) {
  Op op("abs", {&x});
  op.save(x);
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) {  // grad * self.sgn()
    const Tensor self = b.saved(0);
    const Tensor sign = elementwise(b.tape, {&self}, self.dtype());
    b.give(0, elementwise(b.tape, {&b.grad(), &sign}, self.dtype()));
  });
}

Tensor raised(const Tensor& x_in, bool whole) {
  const Tensor x = autocast_fp32(x_in);
  Op op("pow", {&x});
  Tensor y = op.output(x.sizes(), x.dtype() == DType::int64 ? DType::fp32 : x.dtype());
  {
    const Tensor base = filled(op.tape(), {}, whole ? DType::int64 : DType::fp64);  // pow_Scalar_out: wrapped_scalar_tensor
    in_place(y, {&base, &x});
  }
  op.save_output(y);
  return op.done(y, [](BackwardCall& b) {  // pow_backward_exponent of a number: grad * (result * log(number))
    const Tensor result = b.saved(0);
    const Tensor scaled = elementwise(b.tape, {&result}, result.dtype());
    b.give(0, elementwise(b.tape, {&b.grad(), &scaled}, result.dtype()));
  });
}

Tensor triangle(const Tensor& x) {
  Op op("tril", {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) { b.give(0, triangle(b.grad())); });
}

}  // namespace plimsoll::program

/// Complex numbers, as rotary embeddings use them.
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

Dims halved(const Dims& strides, int rank) {
  Dims result;
  for (int i = 0; i < rank; ++i) result.push_back(strides[i] / 2);
  return result;
}

}  // namespace

Tensor view_as_complex(const Tensor& x) {
  Op op("view_as_complex", {&x});
  Dims sizes;
  for (int i = 0; i < x.rank() - 1; ++i) sizes.push_back(x.size(i));
  Tensor y = op.tape().view(x, sizes, halved(x.strides(), x.rank() - 1));
  y.impl()->dtype = DType::complex64;
  return op.done(y, [](BackwardCall& b) { b.give(0, view_as_real(contiguous(b.grad()))); });
}

Tensor view_as_real(const Tensor& x) {
  Op op("view_as_real", {&x});
  Dims sizes = x.sizes(), strides;
  sizes.push_back(2);
  for (int i = 0; i < x.rank(); ++i) strides.push_back(2 * x.strides()[i]);
  strides.push_back(1);
  Tensor y = op.tape().view(x, sizes, strides);
  y.impl()->dtype = DType::fp32;
  return op.done(y, [](BackwardCall& b) { b.give(0, view_as_complex(contiguous(b.grad()))); });
}

Tensor multiply_complex(const Tensor& a, const Tensor& b) {
  Op op("mul", {&a, &b});
  op.save_if(op.needs(0), b);
  op.save_if(op.needs(1), a);
  Tensor y = op.elementwise({&a, &b}, DType::complex64);
  return op.done(y, [](BackwardCall& call) {  // grad * other.conj(); the kernel needs the conjugate in memory
    for (const std::size_t input : {1U, 0U}) {
      if (!call.needs(input)) continue;
      const Tensor conjugate = elementwise(call.tape, {&call.saved(input)}, DType::complex64);
      call.give(input, elementwise(call.tape, {&call.grad(), &conjugate}, DType::complex64));
    }
  });
}

}  // namespace plimsoll::program

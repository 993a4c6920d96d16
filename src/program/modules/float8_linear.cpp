#include "program/modules/float8_linear.hpp"

#include <vector>

#include "plimsoll/error.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

struct Cast {
  Tensor data, scale;
};

/// tensor_to_scale: the largest magnitudes along `dimension`, in fp64 the scale, in fp32 rounded down to a power of two.
Tensor scale_of(const Tensor& x, int dimension) {
  Tape& tape = x.tape();
  Tensor largest;
  {
    const Tensor magnitudes = elementwise(tape, {&x}, x.dtype());
    std::vector<bool> reduced(static_cast<std::size_t>(x.rank()), false);
    reduced[static_cast<std::size_t>(dimension)] = true;
    largest = reduce(magnitudes, reduced, true, x.dtype(), size_of(x.dtype()));
  }
  const auto step = [&](const Tensor& from, DType type) { return elementwise(tape, {&from}, type); };
  const Tensor wide = step(largest, DType::fp64);
  Tensor scale;
  {
    Tensor quotient;
    {
      const Tensor clamped = step(wide, DType::fp64), inverse = step(clamped, DType::fp64);
      quotient = step(inverse, DType::fp64);
    }
    scale = step(quotient, DType::fp32);
  }
  Tensor exponent = step(scale, DType::fp32);
  exponent = step(exponent, DType::fp32);
  return step(exponent, DType::fp32);
}

/// hp_tensor_to_float8_dynamic with scales along `dimension`.
Cast cast(const Tensor& x, int dimension) {
  Tape& tape = x.tape();
  Cast result;
  result.scale = scale_of(x, dimension);
  Tensor scaled;
  {
    const Tensor wide = elementwise(tape, {&x}, DType::fp32);
    scaled = elementwise(tape, {&wide, &result.scale}, DType::fp32);
  }
  const Tensor saturated = elementwise(tape, {&scaled}, DType::fp32);
  result.data = elementwise(tape, {&saturated}, DType::fp8);
  return result;
}

struct ProductSizes {
  std::int64_t rows, columns, inner;
};

/// addmm_float8_unwrapped. `fast`: scales go into the product; else it is scaled behind it. `copied`: arguments whose layout the kernel
/// does not take.
Tensor scaled_product(Tape& tape, const ProductSizes& sizes, bool fast, const std::vector<const Tensor*>& copied) {
  std::vector<Tensor> copies;
  for (const Tensor* argument : copied) copies.push_back(elementwise(tape, {argument}, argument->dtype()));
  Tensor left = tape.empty({sizes.rows, 1}, DType::fp32), right = tape.empty({1, sizes.columns}, DType::fp32);
  Tensor behind;
  if (!fast) {
    behind = elementwise(tape, {&left, &right}, DType::fp32);
    left = tape.empty({}, DType::fp32);
    right = tape.empty({}, DType::fp32);
  }
  Tensor y = tape.empty({sizes.rows, sizes.columns}, DType::bf16);
  gemm(tape, DType::fp8, sizes.rows, sizes.columns, sizes.inner, 1, true);
  if (behind) in_place(y, {&y, &behind});
  return y;
}

void backward(BackwardCall& b) {
  Tape& tape = b.tape;
  const Tensor& x = b.saved(0);
  const Tensor& weight = b.saved(1);
  const std::int64_t in = weight.size(1), out = weight.size(0), rows = x.elements() / in;
  const Tensor gradient = reshape(b.grad(), {rows, out});
  const Tensor flat = reshape(x, {rows, in});
  const Cast by_row = cast(gradient, 1), weights = cast(weight, 0);
  const Tensor of_x = scaled_product(tape, {rows, in, out}, false, {&weights.data});
  const Cast by_column = cast(gradient, 0), inputs = cast(flat, 0);
  const Tensor of_weight = scaled_product(tape, {out, in, rows}, false, {&by_column.data, &inputs.data});
  b.drop_gradients();
  const auto shaped = [&](const Tensor& of, const Dims& sizes) { return tape.view(of, sizes, contiguous_strides(sizes)); };
  if (b.needs(0)) b.give(0, shaped(of_x, x.sizes()));
  if (b.needs(1)) b.give(1, shaped(of_weight, weight.sizes()));
}

}  // namespace

Tensor float8_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (bias) refuse("a Float8Linear with a bias is not modelled");
  const std::int64_t in = weight.size(1), out = weight.size(0), rows = x.elements() / in;
  Op op("float8_linear", {&x, &weight});
  op.see_transposed(1);
  op.save(x);
  op.save(weight);
  Dims sizes = x.sizes();
  sizes[-1] = out;
  Tensor y = selected(op.tape(), "mm", [&]() -> std::vector<Tensor> {
               const GradMode no_grad(op.tape(), false);
               const Cast inputs = cast(x, x.rank() - 1), weights = cast(weight, 1);
               const Tensor product = scaled_product(op.tape(), {rows, out, in}, true, {});
               Tensor result = op.tape().view(product, sizes, contiguous_strides(sizes));
               result.impl()->base.reset();
               return {result};
             }).front();
  return op.done(y, backward);
}

}  // namespace plimsoll::program

#include "program/wrappers/deepspeed/linear.hpp"

#include <utility>

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

/// A product into a new tensor of `sizes`.
Tensor product(Tape& tape, const Dims& sizes, LinearPass pass, const LinearShape& shape, bool biased = false) {
  Tensor y = tape.empty(sizes, shape.result);
  linear_product(tape, pass, shape, {.epilogue = biased ? Epilogue::bias : Epilogue::none});
  return y;
}

}  // namespace

Tensor zero3_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const std::int64_t in = weight.size(1), out = weight.size(0), rows = x.elements() / in;
  PythonFunction op("linear", {&x, &weight, &bias});
  for (const Tensor* input : {&x, &weight, &bias}) op.save_output(*input);  // setup_context runs behind the kernel
  Dims sizes = x.sizes();
  sizes[-1] = out;
  const bool fused = bias && x.rank() == 2;  // torch.addmm
  const LinearShape shape{rows, in, out, x.dtype(), x.dtype()};
  Tensor y = product(op.tape(), sizes, LinearPass::forward, shape, fused);
  if (bias && !fused) in_place(y, {&y, &bias});
  return op.done(y, [in, out, rows](BackwardCall& b) {
    const Tensor &g = b.grad(), &input = b.saved(0);
    const LinearShape layer{rows, in, out, g.dtype(), g.dtype()};
    if (b.needs(0)) b.give(0, product(b.tape, input.sizes(), LinearPass::input_gradient, layer));
    if (b.needs(1)) {
      const Tensor matrix = reshape(g, {rows, out});
      b.give(1, product(b.tape, {out, in}, LinearPass::weight_gradient, layer));
    }
    if (b.needs(2)) b.give(2, sum_to(g, {out}));
  });
}

Tensor linear_of_views(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tape& tape = x.tape();
  const auto patched = std::exchange(tape.patched_linear, nullptr);
  const Tensor transposed = transpose(weight, 0, 1);
  const Tensor y = linear(x, transpose(transposed, 0, 1), bias);
  tape.patched_linear = patched;
  return y;
}

}  // namespace plimsoll::program

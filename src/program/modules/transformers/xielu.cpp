#include "program/modules/transformers/xielu.hpp"

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/unary.hpp"

namespace plimsoll::program {

namespace {

/// torch.expm1, in fp32 under autocast: its backward is grad · (result + 1).
Tensor exponential_less_one(const Tensor& input) {
  const Tensor x = autocast_fp32(input);
  Op op("expm1", {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  op.save_output(y);
  return op.done(y, [](BackwardCall& b) {
    const Tensor result = b.saved(0), raised = elementwise(b.tape, {&result}, result.dtype());
    b.give(0, elementwise(b.tape, {&b.grad(), &raised}, result.dtype()));
  });
}

/// torch.min(x, limit), whose limit is a constant: where both are equal half of the gradient passes, none where x is above.
Tensor minimum(const Tensor& x, const Tensor& limit) {
  Op op("minimum", {&x});
  op.save(x);
  op.save(limit);
  Tensor y = op.elementwise({&x, &limit}, x.dtype());
  return op.done(y, [](BackwardCall& b) {
    const Tensor self = b.saved(0), other = b.saved(1);
    const auto compare = [&] { return elementwise(b.tape, {&self, &other}, DType::boolean); };
    const Tensor above = compare(), half = elementwise(b.tape, {&b.grad()}, b.grad().dtype()), equal = compare();
    const Tensor gradient = elementwise(b.tape, {&equal, &half, &b.grad()}, b.grad().dtype());
    in_place(gradient, {&gradient, &above});
    b.give(0, gradient);
  });
}

/// torch.where(condition, a, b): each gradient is chosen beside a zero made for it.
Tensor chosen(const Tensor& condition, const Tensor& a, const Tensor& b) {
  Op op("where", {&a, &b});
  op.save(condition);
  Tensor y = op.elementwise({&condition, &a, &b}, a.dtype());
  return op.done(y, [](BackwardCall& call) {
    const Tensor first = call.saved(0);
    for (const int input : {0, 1}) {
      const Tensor zero = filled(call.tape, {}, call.grad().dtype());
      call.give(input, elementwise(call.tape, {&first, &call.grad(), &zero}, call.grad().dtype()));
    }
  });
}

}  // namespace

Tensor xielu(Module& module, Tape& tape, const Tensor& input) {
  Tensor x = input;
  ModuleCall call(module, tape, {&x});
  const Tensor beta = module.buffer("beta"), positive = unary_saving_input("softplus", module.tensor("alpha_p"));
  Tensor negative;
  {
    const Tensor raised = unary_saving_input("softplus", module.tensor("alpha_n"));
    negative = add(beta, raised);
  }
  const Tensor above_zero = elementwise(tape, {&x}, DType::boolean);
  Tensor above, below;
  {
    Tensor square = multiply(positive, x);
    square = multiply(square, x);
    const Tensor line = multiply(beta, x);
    above = add(square, line);
  }
  {
    Tensor curve = minimum(x, module.buffer("eps"));
    curve = exponential_less_one(curve);
    curve = subtract(curve, x);
    curve = multiply(curve, negative);
    const Tensor line = multiply(beta, x);
    below = add(curve, line);
  }
  return call.done(chosen(above_zero, above, below));
}

}  // namespace plimsoll::program

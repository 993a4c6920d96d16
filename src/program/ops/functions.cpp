// Their backward passes: tools/autograd/derivatives.yaml and torch/csrc/autograd/FunctionsManual.cpp of PyTorch 2.15.
#include "program/ops/functions.hpp"

#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// grad * f(saved): what f's steps make lives until the product is there.
Tensor scaled_by(Tape& tape, const Tensor& grad, const Tensor& saved, int steps) {
  List<Tensor> made;
  for (int i = 0; i < steps; ++i) {
    const Tensor& last = i == 0 ? saved : made.back();
    made.push_back(elementwise(tape, {&last}, saved.dtype()));
  }
  return made.empty() ? elementwise(tape, {&grad, &saved}, saved.dtype()) : elementwise(tape, {&grad, &made.back()}, saved.dtype());
}

}  // namespace

int promotion_rank(DType type) {
  switch (type) {
    case DType::fp64:
      return 6;
    case DType::fp32:
      return 5;
    case DType::bf16:
    case DType::fp16:
      return 4;
    case DType::int64:
      return 3;
    case DType::int32:
      return 2;
    case DType::boolean:
      return 0;
    default:
      return 1;
  }
}

DType common_type(const Tensor& a, const Tensor& b) {
  const int of_a = promotion_rank(a.dtype()), of_b = promotion_rank(b.dtype());
  if (a.rank() == 0 && b.rank() > 0 && (of_b >= kFloatingRank || of_a < kFloatingRank) && of_b > 0) return b.dtype();
  if (b.rank() == 0 && a.rank() > 0 && (of_a >= kFloatingRank || of_b < kFloatingRank) && of_a > 0) return a.dtype();
  if (of_a == kFloatingRank && of_b == kFloatingRank && a.dtype() != b.dtype()) return DType::fp32;
  return of_a >= of_b ? a.dtype() : b.dtype();
}

Tensor function(const FunctionRule& rule, const Tensor& x_in) {
  const Tensor x = rule.fp32 ? autocast_fp32(x_in) : x_in;
  Op op(rule.name, {&x});
  if (rule.saves == FunctionRule::Saves::input) op.save(x);
  Tensor y = op.elementwise({&x}, x.dtype());
  if (rule.saves == FunctionRule::Saves::result) op.save_output(y);
  if (rule.constant)
    return op.done(y, [](BackwardCall& b) {
      Tensor nothing = empty_like(b.grad());
      memset(nothing);
      b.give(0, std::move(nothing));
    });
  return op.done(y, [steps = rule.steps](BackwardCall& b) { b.give(0, scaled_by(b.tape, b.grad(), b.saved(0), steps)); });
}

Tensor function_in_place(const FunctionRule& rule, const Tensor& x) {
  Op op(rule.name, {&x});
  const bool keeps_result = rule.saves == FunctionRule::Saves::result;
  if (!keeps_result && op.needs(0)) op.save(clone(x.detach()));  // its backward reads what x was
  in_place(x, {&x});
  Tensor y = x.detach();
  if (keeps_result) op.save_output(y);
  return op.done(y, [steps = rule.steps](BackwardCall& b) { b.give(0, scaled_by(b.tape, b.grad(), b.saved(0), steps)); });
}

Tensor gated_linear_unit(const Tensor& x, int dimension) {
  Op op("glu", {&x});
  op.save(x);
  Dims half = x.sizes();
  half[dimension] /= 2;
  const Tensor part = op.tape().view(x.detach(), half, x.strides());
  Tensor y = op.output(half, x.dtype());
  pointwise(y, {&part, &part});
  return op.done(y, [half](BackwardCall& b) {  // glu_backward_cuda: both halves in one kernel
    const Tensor self = b.saved(0);
    Tensor gradient = b.tape.empty(self.sizes(), self.dtype());
    const Tensor place = b.tape.view(gradient, half, gradient.strides()), gate = b.tape.view(self, half, self.strides());
    pointwise(Pointwise::Form::fused, {&gate, &gate, &b.grad()}, {&place, &place});
    b.give(0, std::move(gradient));
  });
}

Tensor nan_to_num(const Tensor& x) {
  Op op("nan_to_num", {&x});
  op.save(x);
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) {  // grad * self.isfinite(), which is (self == self) * (self.abs() != inf)
    const Tensor self = b.saved(0);
    Tensor finite;
    {
      const Tensor equal = elementwise(b.tape, {&self, &self}, DType::boolean), size = elementwise(b.tape, {&self}, self.dtype()),
                   small = elementwise(b.tape, {&size}, DType::boolean);
      finite = elementwise(b.tape, {&equal, &small}, DType::boolean);
    }
    b.give(0, elementwise(b.tape, {&b.grad(), &finite}, b.grad().dtype()));
  });
}

Tensor power_of(const Tensor& x_in, double exponent) {
  const Tensor x = autocast_fp32(x_in);
  Op op("pow", {&x});
  op.save(x);
  Tensor y = empty_like(x);
  const auto raise = [](const Tensor& made, const Tensor& base, double to) {  // pow(1) is a copy, pow(0) a filling (Pow.cpp)
    if (to == 1) return copy_into(made, base);
    if (to == 0) return in_place(made, {});
    in_place(made, {&base});
  };
  raise(y, x, exponent);
  return op.done(y, [exponent, raise](BackwardCall& b) {  // pow_backward
    const Tensor self = b.saved(0);
    if (exponent == 0) {
      Tensor nothing = empty_like(self);
      memset(nothing);
      return b.give(0, std::move(nothing));
    }
    const Tensor lower = empty_like(self);
    raise(lower, self, exponent - 1);
    const Tensor scaled = elementwise(b.tape, {&lower}, self.dtype());
    b.give(0, elementwise(b.tape, {&b.grad(), &scaled}, self.dtype()));
  });
}

Tensor remainder(const Tensor& x, const Tensor& y) {
  Op op("remainder", {&x});
  Tensor made = y ? op.elementwise({&x, &y}, common_type(x, y)) : op.elementwise({&x}, x.dtype());
  return op.done(made, [](BackwardCall& b) { b.give(0, b.grad()); });
}

Tensor floor_quotient(const Tensor& x, const Tensor& y, DType type) {
  const Op op("floor_divide", {&x});
  return y ? elementwise(op.tape(), {&x, &y}, type) : elementwise(op.tape(), {&x}, type);
}

Tensor multiply_in_place(const Tensor& target, const Tensor& other) {
  Op op("mul_", {&target, &other});
  if (other) {
    op.save_if(op.needs(0), other);
    op.save(op.needs(1) ? clone(target.detach()) : Tensor());
    in_place(target, {&target, &other});
  } else {
    in_place(target, {&target});
  }
  Tensor y = target.detach();
  return op.done(y, [by_tensor = other.defined()](BackwardCall& b) {
    if (!by_tensor) return b.give(0, elementwise(b.tape, {&b.grad()}, b.grad().dtype()));
    if (b.needs(1)) {
      const Tensor self = b.saved(1);
      b.give(1, multiply(b.grad(), self));
    }
    if (b.needs(0)) {
      const Tensor factor = b.saved(0);
      b.give(0, multiply(b.grad(), factor));
    }
  });
}

Tensor subtract_in_place(const Tensor& target, const Tensor& other) {
  Op op("sub_", {&target, &other});
  if (other)
    in_place(target, {&target, &other});
  else
    in_place(target, {&target});
  Tensor y = target.detach();
  return op.done(y, [by_tensor = other.defined()](BackwardCall& b) {
    if (by_tensor && b.needs(1)) b.give(1, negate(b.grad()));
    if (b.needs(0)) b.give(0, b.grad());
  });
}

Tensor dropout_in_place(const Tensor& x) {
  const Tensor noise = empty_like(x);
  in_place(noise, {});        // bernoulli_
  in_place(noise, {&noise});  // div_
  return multiply_in_place(x, noise);
}

Tensor fill_in_place(const Tensor& target, bool zero) {
  Op op("fill_", {&target});
  if (zero && target.tape().torch.zeroes_by_driver())
    memset(target);
  else
    in_place(target, {});
  Tensor y = target.detach();
  return op.done(y, [](BackwardCall& b) {
    Tensor nothing = empty_like(b.grad());
    memset(nothing);
    b.give(0, std::move(nothing));
  });
}

Tensor change_in_place(const Tensor& target) {
  const Op op("map_", {&target});
  in_place(target, {&target});
  return target.detach();
}

Tensor interpolated(const Tensor& x, const Tensor& end) {
  Op op("lerp", {&x, &end});
  Tensor y = op.elementwise({&x, &end}, x.dtype());
  return op.done(y, [](BackwardCall& b) {  // grad * (1 - weight), grad * weight
    if (b.needs(0)) b.give(0, elementwise(b.tape, {&b.grad()}, b.grad().dtype()));
    if (b.needs(1)) b.give(1, elementwise(b.tape, {&b.grad()}, b.grad().dtype()));
  });
}

Tensor add_product(const Tensor& x, const Tensor& a, const Tensor& b_in) {
  Op op("addcmul", {&x, &a, &b_in});
  op.save_if(op.needs(2), a);
  op.save_if(op.needs(1), b_in);
  Tensor y = op.elementwise({&x, &a, &b_in}, common_type(x, a));
  return op.done(y, [](BackwardCall& b) {
    if (b.needs(0)) b.give(0, b.grad());
    for (const std::size_t factor : {std::size_t{1}, std::size_t{2}}) {  // grad * (other * value)
      if (!b.needs(factor)) continue;
      const Tensor other = b.saved(2 - factor);
      const Tensor scaled = elementwise(b.tape, {&other}, other.dtype());
      b.give(factor, elementwise(b.tape, {&b.grad(), &scaled}, b.grad().dtype()));
    }
  });
}

}  // namespace plimsoll::program

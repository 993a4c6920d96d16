#include "program/ops/copying.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/unary.hpp"

namespace plimsoll::program {

namespace {

/// The type of a binary operator's result; a 0-dimensional tensor does not raise the type of one with dimensions.
DType promoted(const Tensor& a, const Tensor& b) {
  const int of_a = promotion_rank(a.dtype()), of_b = promotion_rank(b.dtype());
  const bool floating_a = of_a >= kFloatingRank, floating_b = of_b >= kFloatingRank;
  if (a.rank() == 0 && b.rank() > 0 && (floating_b || !floating_a)) return b.dtype();
  if (b.rank() == 0 && a.rank() > 0 && (floating_a || !floating_b)) return a.dtype();
  return of_a >= of_b ? a.dtype() : b.dtype();
}

void result_backward(BackwardCall& b) {
  const Tensor result = b.saved(0);
  b.give(0, elementwise(b.tape, {&b.grad(), &result}, result.dtype()));
}

Tensor unary_saving_output(const char* name, const Tensor& x) {
  Op op(name, {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  op.save_output(y);
  return op.done(y, result_backward);
}

void divide_backward(BackwardCall& call) {
  const Tensor other = call.saved(0);
  if (call.needs(1)) {  // div_tensor_other_grad: -grad * ((self / other) / other), whose temporaries all live to its end
    const Tensor self = call.saved(1);
    const Tensor negated = negate(call.grad());
    const Tensor ratio = elementwise(call.tape, {&self, &other}, call.grad().dtype());
    const Tensor ratio_of_ratio = elementwise(call.tape, {&ratio, &other}, call.grad().dtype());
    call.give(1, multiply(negated, ratio_of_ratio));
  }
  if (call.needs(0)) call.give(0, elementwise(call.tape, {&call.grad(), &other}, call.grad().dtype()));
}

}  // namespace

Tensor unary_saving_input(const char* name, const Tensor& x, std::int64_t told) {
  Op op(name, {&x});
  op.tell_number(told);
  op.save(x);
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) {
    const Tensor input = b.saved(0);
    b.give(0, elementwise(b.tape, {&b.grad(), &input}, input.dtype()));
  });
}

namespace {

Tensor cast(const Tensor& x, DType type, const Dims& strides) {
  Op op("to", {&x});
  Tensor y = op.tape().empty(x.sizes(), type);
  y.impl()->strides = strides;
  in_place(y, {&x});
  return op.done(y, [before = x.dtype()](BackwardCall& b) { b.give(0, to(b.grad(), before)); });
}

}  // namespace

Tensor to(const Tensor& x, DType type) { return x.dtype() == type ? x : cast(x, type, like_strides(x)); }

Tensor to_row_major(const Tensor& x, DType type) { return cast(x, type, contiguous_strides(x.sizes())); }

Tensor add(const Tensor& a, const Tensor& b) {
  Op op("add", {&a, &b});
  Tensor y = op.elementwise({&a, &b}, promoted(a, b));
  return op.done(y, [](BackwardCall& call) {
    if (call.needs(0)) call.give(0, call.grad());
    if (call.needs(1)) call.give(1, call.grad());
  });
}

Tensor subtract(const Tensor& a, const Tensor& b) {
  Op op("sub", {&a, &b});
  Tensor y = op.elementwise({&a, &b}, promoted(a, b));
  return op.done(y, [](BackwardCall& call) {
    if (call.needs(1)) call.give(1, negate(call.grad()));
    if (call.needs(0)) call.give(0, call.grad());
  });
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  Op op("mul", {&a, &b});
  op.save_if(op.needs(0), b);
  op.save_if(op.needs(1), a);
  Tensor y = op.elementwise({&a, &b}, promoted(a, b));
  return op.done(y, [](BackwardCall& call) {
    if (call.needs(1)) {
      const Tensor self = call.saved(1);
      call.give(1, multiply(call.grad(), self));
    }
    if (call.needs(0)) {
      const Tensor other = call.saved(0);
      call.give(0, multiply(call.grad(), other));
    }
  });
}

Tensor divide(const Tensor& a, const Tensor& b) {
  Op op("div", {&a, &b});
  op.save(b);
  op.save_if(op.needs(1), a);
  Tensor y = op.elementwise({&a, &b}, promoted(a, b));
  return op.done(y, divide_backward);
}

Tensor divide_in_place(const Tensor& target, const Tensor& other) {
  Op op("div_", {&target, &other});
  op.save(other);
  op.save(op.needs(1) ? clone(target.detach()) : Tensor());
  in_place(target, {&target, &other});
  Tensor y = target.detach();
  return op.done(y, divide_backward);
}

Tensor add_scalar(const Tensor& x) {
  Op op("add", {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) { b.give(0, b.grad()); });
}

Tensor multiply_scalar(const Tensor& x) {
  Op op("mul", {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) { b.give(0, multiply_scalar(b.grad())); });
}

Tensor divide_scalar(const Tensor& x) {
  Op op("div", {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) { b.give(0, divide_scalar(b.grad())); });
}

Tensor negate(const Tensor& x) {
  Op op("neg", {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) { b.give(0, negate(b.grad())); });
}

Tensor power(const Tensor& x_in, int exponent) {
  const Tensor x = autocast_fp32(x_in);
  Op op("pow", {&x});
  op.tell_number(exponent);
  op.save(x);
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [exponent](BackwardCall& b) {  // pow_backward: grad * (exponent * self.pow(exponent - 1))
    const Tensor self = b.saved(0);
    const Tensor lower = empty_like(self);
    if (exponent == 2)  // self.pow(1) is a copy
      copy_into(lower, self);
    else
      in_place(lower, {&self});
    const Tensor scaled = elementwise(b.tape, {&lower}, self.dtype());
    b.give(0, elementwise(b.tape, {&b.grad(), &scaled}, self.dtype()));
  });
}

Tensor rsqrt(const Tensor& x_in) {
  const Tensor x = autocast_fp32(x_in);
  Op op("rsqrt", {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  op.save_output(y);
  return op.done(y, [](BackwardCall& b) {  // -0.5 * grad * result.pow(3)
    const Tensor result = b.saved(0);
    const Tensor half = elementwise(b.tape, {&b.grad()}, result.dtype());
    const Tensor cube = elementwise(b.tape, {&result}, result.dtype());
    b.give(0, elementwise(b.tape, {&half, &cube}, result.dtype()));
  });
}

static Tensor unary_without_gradient(const char* name, const Tensor& x) {
  Op op(name, {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y);
}
Tensor cosine(const Tensor& x) { return unary_without_gradient("cos", x); }
Tensor sine(const Tensor& x) { return unary_without_gradient("sin", x); }
Tensor tanh(const Tensor& x) { return unary_saving_output("tanh", x); }
Tensor sigmoid(const Tensor& x) { return unary_saving_output("sigmoid", x); }
Tensor relu(const Tensor& x) { return unary_saving_output("relu", x); }

Tensor relu_into(const Tensor& x) {
  Op op("relu_", {&x});
  Tensor y = x.detach();
  in_place(y, {&x});
  op.save_output(y);
  return op.done(y, result_backward);
}

Tensor silu(const Tensor& x) { return unary_saving_input("silu", x); }
Tensor gelu(const Tensor& x) { return unary_saving_input("gelu", x); }
Tensor gelu_by_tanh(const Tensor& x) { return unary_saving_input("gelu", x, 1); }

Tensor dropout(const Tensor& x, double p) {
  if (p == 0) return x;
  Op op("dropout", {&x});
  Tensor mask = op.tape().empty(x.sizes(), DType::boolean);  // fused_dropout_cuda: the mask, then the result
  mask.impl()->strides = like_strides(x);
  Tensor y = empty_like(x);
  pointwise(Pointwise::Form::random, {&x}, {&y, &mask});
  op.save_output(mask);
  return op.done(y, [](BackwardCall& b) {  // native_dropout_backward: grad * mask * scale
    const Tensor kept = b.saved(0);
    b.give(0, elementwise(b.tape, {&b.grad(), &kept}, b.grad().dtype()));
  });
}

Tensor where(const Tensor& condition, const Tensor& x) {
  Op op("where", {&x});
  op.save(condition);
  const Tensor number = zeros(op.tape(), {}, x.dtype());
  Tensor y = op.elementwise({&condition, &x, &number}, x.dtype());
  return op.done(y, [](BackwardCall& b) {  // where(condition, grad, 0)
    const Tensor kept = b.saved(0), zero = filled(b.tape, {}, b.grad().dtype());
    b.give(0, elementwise(b.tape, {&kept, &b.grad(), &zero}, b.grad().dtype()));
  });
}

Tensor filled(Tape& tape, const Dims& sizes, DType type) {
  Tensor y = tape.empty(sizes, type);
  in_place(y, {});
  return y;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask) {
  Op op("masked_fill", {&x});
  op.save(mask);
  Tensor y = clone(x.detach());  // masked_fill: a clone, filled in place
  in_place(y, {&y, &mask});
  return op.done(y, [](BackwardCall& b) {
    const Tensor filled = b.saved(0);
    Tensor gradient = clone(b.grad());
    in_place(gradient, {&gradient, &filled});
    b.give(0, std::move(gradient));
  });
}

namespace {

/// clamp_backward: where((self >= min).logical_and_(self <= max), grad, 0).
void clamp_backward(BackwardCall& b) {
  const Tensor self = b.saved(0);
  const Tensor zero = filled(b.tape, {}, b.grad().dtype());
  const Tensor above = elementwise(b.tape, {&self}, DType::boolean), below = elementwise(b.tape, {&self}, DType::boolean);
  in_place(above, {&above, &below});
  b.give(0, elementwise(b.tape, {&above, &b.grad(), &zero}, b.grad().dtype()));
}

}  // namespace

Tensor clamp(const Tensor& x) {
  Op op("clamp", {&x});
  op.save(x);
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, clamp_backward);
}

/// The gradient passes where x <= max, or x >= min.
Tensor clamp_one_side(const Tensor& x) {
  Op op("clamp", {&x});
  op.save(x);
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) {
    const Tensor self = b.saved(0);
    const Tensor below = elementwise(b.tape, {&self}, DType::boolean);
    const Tensor zero = filled(b.tape, {}, b.grad().dtype());  // at::where makes a tensor of the number
    b.give(0, elementwise(b.tape, {&below, &b.grad(), &zero}, b.grad().dtype()));
  });
}

Tensor clamp_into(const Tensor& x) {
  Op op("clamp_", {&x});
  if (op.needs(0)) op.save(clone(x.detach()));  // its backward reads what x was
  Tensor y = x.detach();
  in_place(y, {&x});
  return op.done(y, clamp_backward);
}

Tensor add_into(const Tensor& a, const Tensor& b) {
  Op op("add_", {&a, &b});
  Tensor y = a.detach();
  in_place(y, {&a, &b});
  return op.done(y, [](BackwardCall& call) {
    if (call.needs(0)) call.give(0, call.grad());
    if (call.needs(1)) call.give(1, call.grad());
  });
}

Tensor divide_scalar_into(const Tensor& x) {
  Op op("div_", {&x});
  Tensor y = x.detach();
  in_place(y, {&x});
  return op.done(y, [](BackwardCall& b) { b.give(0, divide_scalar(b.grad())); });
}

void add_in_place(const Tensor& target, const Tensor& other) { in_place(target, {&target, &other}); }

}  // namespace plimsoll::program

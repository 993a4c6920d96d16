// Elementwise functions and arithmetic of torch, of torch.nn.functional, and in place.
#include <cmath>
#include <utility>

#include "code/torch/arguments.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::code {

using program::FunctionRule;
using program::Tensor;
using In = Torch::In;

namespace {

/// A function of floating numbers; whole ones become fp32 in the same kernel, or stay where rounding changes nothing of them.
template <const FunctionRule& kRule>
Value mapped(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (is_floating(x.dtype())) return torch_of(i).wrap(program::function(kRule, x));
  return torch_of(i).wrap(program::Op(kRule.name, {&x}).elementwise({&x}, kRule.constant ? x.dtype() : DType::fp32));
}

/// An activation; the argument at `kInPlace` asks for it in place.
template <const FunctionRule& kRule, const FunctionRule& kInPlaceRule, std::size_t kInPlace>
Value activated(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (!flag(i, a, kInPlace)) return torch_of(i).wrap(program::function(kRule, x));
  torch_of(i).check_changeable(x);
  return torch_of(i).replace(a[0], program::function_in_place(kInPlaceRule, x));
}

Value silu(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (!flag(i, a, 1)) return torch_of(i).wrap(program::silu(x));
  torch_of(i).check_changeable(x);
  return torch_of(i).replace(a[0], program::function_in_place(program::kSiluInPlace, x));
}

Value relu(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (!flag(i, a, 1)) return torch_of(i).wrap(program::relu(x));
  torch_of(i).check_changeable(x);
  return torch_of(i).replace(a[0], program::relu_into(x));
}

Value gated(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const int dimension = dimension_at(i, a, 1, x.rank(), x.rank() - 1);
  if (x.size(dimension) % 2 != 0)
    torch_of(i).wrong_shape("Halving dimension must be even, but dimension " + std::to_string(dimension) + " is size " +
                            std::to_string(x.size(dimension)));
  return torch_of(i).wrap(program::gated_linear_unit(x, dimension));
}

template <Operator kOperator>
Value binary(Interpreter& i, Bound& a) {
  return torch_of(i).binary(kOperator, a[0], a[1]);
}

template <Operator kOperator>
Value changed(Interpreter& i, Bound& a) {
  return torch_of(i).in_place(kOperator, a[0], a[1]);
}

/// torch.logical_and and its like: truth of both, as bool.
Value logical(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), y = torch_of(i).tensor_of(a[1], "other");
  torch_of(i).check_devices({&x, &y});
  torch_of(i).check_broadcast(x, y);
  return torch_of(i).wrap(program::compare(x, y, DType::boolean));
}

Value logical_not(Interpreter& i, Bound& a) { return torch_of(i).wrap(program::compare(input_of(i, a), {}, DType::boolean)); }

/// What the device computes is taken to be finite; of what is followed, its numbers tell.
Value told_of_numbers(Interpreter& i, const Value& of, Tensor made, bool (*truth)(double)) {
  Value result = torch_of(i).wrap(std::move(made));
  const std::optional<double> number = torch_of(i).uniform(of);
  if (!number && torch_of(i).follows(of)) return result;
  return torch_of(i).follow_filled(std::move(result), truth(number.value_or(0)) ? 1 : 0);
}

/// isfinite: (self == self) * (self.abs() != inf) (TensorCompare.cpp).
Value is_finite(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a).detach();
  if (!is_floating(x.dtype())) return torch_of(i).wrap(program::filled(x.tape(), x.sizes(), DType::boolean));
  const Tensor equal = program::compare(x, x, DType::boolean);
  const Tensor size = program::absolute(x);
  const Tensor finite = program::compare(size, {}, DType::boolean);
  return told_of_numbers(i, a[0], program::compare(equal, finite, DType::boolean), [](double number) { return std::isfinite(number); });
}

/// isinf: self.abs() == inf.
Value is_infinite(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a).detach();
  if (!is_floating(x.dtype())) return torch_of(i).wrap(program::zeros(x.tape(), x.sizes(), DType::boolean));
  const Tensor size = program::absolute(x);
  return told_of_numbers(i, a[0], program::compare(size, {}, DType::boolean), [](double number) { return std::isinf(number); });
}

Value is_no_number(Interpreter& i, Bound& a) {
  return told_of_numbers(i, a[0], program::compare(input_of(i, a), {}, DType::boolean), [](double number) { return std::isnan(number); });
}

Value larger(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), y = torch_of(i).tensor_of(a[1], "other");
  torch_of(i).check_devices({&x, &y});
  torch_of(i).check_broadcast(x, y);
  return torch_of(i).wrap(program::larger_of(x, y));
}

Value lerp(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), end = torch_of(i).tensor_of(a[1], "end");
  if (Torch::is_tensor(a[2])) i.unknown("torch.lerp by a tensor's weights", "a number");
  torch_of(i).check_devices({&x, &end});
  torch_of(i).check_broadcast(x, end);
  return torch_of(i).wrap(program::interpolated(x, end));
}

Value addcmul(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), first = torch_of(i).tensor_of(a[1], "tensor1"), second = torch_of(i).tensor_of(a[2], "tensor2");
  torch_of(i).check_devices({&x, &first, &second});
  torch_of(i).check_broadcast(x, first);
  torch_of(i).check_broadcast(first, second);
  return torch_of(i).wrap(program::add_product(x, first, second));
}

Value divided(Interpreter& i, Bound& a) {
  if (!a.has(2)) return torch_of(i).binary(Operator::divide, a[0], a[1]);
  const std::string& mode = i.words(a[2], "rounding modes");
  if (mode != "floor" && mode != "trunc") i.unknown("a division with rounding_mode='" + mode + "'", "floor or trunc");
  return torch_of(i).binary(Operator::floor_divide, a[0], a[1]);
}

template <bool kZero>
Value filled(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (!torch_of(i).is_on_device(x)) return a[0];
  torch_of(i).check_changeable(x);
  return torch_of(i).replace(a[0], program::fill_in_place(x, kZero));
}

/// A function in place whose backward is not written: of what takes no gradient.
Value mapped_in_place(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  torch_of(i).check_changeable(x);
  if (x.requires_grad() && torch_of(i).grad_enabled()) i.unknown("this function in place of what takes a gradient");
  if (!torch_of(i).is_on_device(x)) return a[0];
  return torch_of(i).replace(a[0], program::change_in_place(x));
}

// ---- complex numbers ----

Value polar(Interpreter& i, Bound& a) {
  const Tensor size = input_of(i, a), angle = torch_of(i).tensor_of(a[1], "angle");
  torch_of(i).check_devices({&size, &angle});
  torch_of(i).check_broadcast(size, angle);
  if (size.dtype() != DType::fp32 || angle.dtype() != DType::fp32) i.unknown("torch.polar of other than fp32");
  if (size.requires_grad() || angle.requires_grad()) i.unknown("torch.polar of what takes a gradient");
  return torch_of(i).wrap(program::compare(size, angle, DType::complex64));
}

Value as_complex(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (x.rank() < 1 || x.size(-1) != 2) torch_of(i).wrong_shape("Tensor must have a last dimension of size 2");
  if (x.dtype() != DType::fp32) i.unknown("complex numbers of other than fp32");
  if (x.strides()[-1] != 1) torch_of(i).wrong_shape("Tensor must have a last dimension with stride 1");
  return torch_of(i).wrap(program::view_as_complex(x));
}

Value as_real(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (x.dtype() != DType::complex64) torch_of(i).wrong_shape("view_as_real is only supported for complex tensors");
  torch_of(i).check_rank(x.rank() + 1);
  return torch_of(i).wrap(program::view_as_real(x));
}

constexpr OperatorRow kRows[] = {
    {In::torch, "polar", "abs, angle", polar},
    {In::torch, "view_as_complex", "input", as_complex},
    {In::torch, "view_as_real", "input", as_real},
    {In::both, "sin", "input", mapped<program::kSin>},
    {In::both, "cos", "input", mapped<program::kCos>},
    {In::both, "tan", "input", mapped<program::kTangent>},
    {In::both, "asin", "input", mapped<program::kArcsine>},
    {In::both, "acos", "input", mapped<program::kArccosine>},
    {In::both, "atan", "input", mapped<program::kArctangent>},
    {In::both, "nan_to_num", "input, nan=, posinf=, neginf=", [](Interpreter& i, Bound& a) {
       return torch_of(i).wrap(program::nan_to_num(input_of(i, a)));
     }},
    {In::both, "erf", "input", mapped<program::kErrorFunction>},
    {In::both, "erfinv", "input", mapped<program::kInverseErrorFunction>},
    {In::both, "expm1", "input", mapped<program::kExpm1>},
    {In::both, "log1p", "input", mapped<program::kLog1p>},
    {In::both, "log2", "input", mapped<program::kLog2>},
    {In::both, "log10", "input", mapped<program::kLog10>},
    {In::both, "floor", "input", mapped<program::kFloor>},
    {In::both, "ceil", "input", mapped<program::kCeil>},
    {In::both, "round", "input, *, decimals=", mapped<program::kRound>},
    {In::both, "trunc", "input", mapped<program::kTruncate>},
    {In::both, "sign", "input", mapped<program::kSign>},
    {In::both, "sgn", "input", mapped<program::kSign>},
    {In::both, "remainder", "input, other", binary<Operator::modulo>},
    {In::both, "floor_divide", "input, other", binary<Operator::floor_divide>},
    {In::both, "div", "input, other, *, rounding_mode=", divided},
    {In::both, "divide", "input, other, *, rounding_mode=", divided},
    {In::both, "multiply", "input, other", binary<Operator::multiply>},
    {In::both, "subtract", "input, other", binary<Operator::subtract>},
    {In::both, "bitwise_and", "input, other", binary<Operator::bit_and>},
    {In::both, "bitwise_or", "input, other", binary<Operator::bit_or>},
    {In::both, "bitwise_xor", "input, other", binary<Operator::bit_xor>},
    {In::both, "logical_and", "input, other", logical},
    {In::both, "logical_or", "input, other", logical},
    {In::both, "logical_xor", "input, other", logical},
    {In::both, "logical_not", "input", logical_not},
    {In::both, "bitwise_not", "input", [](Interpreter& i, Bound& a) { return torch_of(i).unary(Operator::invert, a[0]); }},
    {In::both, "isnan", "input", is_no_number},
    {In::both, "isfinite", "input", is_finite},
    {In::both, "isinf", "input", is_infinite},
    {In::both, "maximum", "input, other", larger},
    {In::both, "minimum", "input, other", larger},
    {In::both, "lerp", "input, end, weight", lerp},
    {In::both, "addcmul", "input, tensor1, tensor2, *, value=", addcmul},
    {In::tensor, "mul_", "input, other", changed<Operator::multiply>},
    {In::tensor, "sub_", "input, other", changed<Operator::subtract>},
    {In::tensor, "fill_", "input, value", filled<false>},
    {In::tensor, "zero_", "input", filled<true>},
    {In::tensor, "normal_", "input, mean=, std=, *, generator=", mapped_in_place},
    {In::tensor, "uniform_", "input, a=, b=, *, generator=", mapped_in_place},
    {In::tensor, "bernoulli_", "input, p=, *, generator=", mapped_in_place},
    {In::tensor, "exponential_", "input, lambd=", mapped_in_place},
    {In::tensor, "floor_", "input", mapped_in_place},
    {In::tensor, "round_", "input", mapped_in_place},
    {In::tensor, "abs_", "input", mapped_in_place},
    {In::tensor, "exp_", "input", mapped_in_place},
    {In::tensor, "clamp_", "input, min=, max=", mapped_in_place},
    {In::tensor, "clamp_min_", "input, min", mapped_in_place},
};

constexpr LibraryRow kFunctional[] = {
    {"softplus", "input, beta=, threshold=", mapped<program::kSoftplus>},
    {"logsigmoid", "input", mapped<program::kLogSigmoid>},
    {"mish", "input, inplace=", activated<program::kMish, program::kMish, 1>},
    {"leaky_relu", "input, negative_slope=, inplace=", activated<program::kLeakyRelu, program::kLeakyReluInPlace, 2>},
    {"elu", "input, alpha=, inplace=", activated<program::kElu, program::kEluInPlace, 2>},
    {"hardtanh", "input, min_val=, max_val=, inplace=", activated<program::kHardtanh, program::kHardtanhInPlace, 3>},
    {"relu6", "input, inplace=", activated<program::kHardtanh, program::kHardtanhInPlace, 1>},
    {"hardswish", "input, inplace=", activated<program::kHardswish, program::kHardswish, 1>},
    {"hardsigmoid", "input, inplace=", activated<program::kHardsigmoid, program::kHardsigmoid, 1>},
    {"silu", "input, inplace=", silu},
    {"relu", "input, inplace=", relu},
    {"glu", "input, dim=", gated},
};

}  // namespace

void define_math(Interpreter& i, Torch& torch) {
  for (const OperatorRow& row : kRows) torch.define(row.in, row.name, row.signature, row.run);
  NamespaceObject& library = i.library("torch.nn.functional");
  for (const LibraryRow& row : kFunctional)
    library.attributes[i.symbol(row.name)] = i.native(std::string("torch.nn.functional.") + row.name, row.signature, row.run);
}

}  // namespace plimsoll::code

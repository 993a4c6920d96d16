/// Functions of one tensor, element by element, and arithmetic that only code which is read asks for.
#pragma once

#include "program/op.hpp"

namespace plimsoll::program {

/// How an elementwise function of one tensor behaves in autocast and in backward (tools/autograd/derivatives.yaml).
struct FunctionRule {
  const char* name;  ///< a literal
  enum class Saves : std::uint8_t { nothing, input, result } saves;
  /// Kernels that make the factor of the gradient out of what is saved, one behind the other; their results live to the formula's end. 0:
  /// one kernel makes the gradient of both.
  int steps;
  bool fp32 = false;      ///< stands in autocast's list of fp32
  bool constant = false;  ///< the gradient is zero everywhere (zeros_like)
};

inline constexpr FunctionRule kSin{"sin", FunctionRule::Saves::input, 1};
inline constexpr FunctionRule kCos{"cos", FunctionRule::Saves::input, 2};
inline constexpr FunctionRule kTangent{"tan", FunctionRule::Saves::result, 2, true};
inline constexpr FunctionRule kArcsine{"asin", FunctionRule::Saves::input, 4, true};
inline constexpr FunctionRule kArccosine{"acos", FunctionRule::Saves::input, 5, true};
inline constexpr FunctionRule kArctangent{"atan", FunctionRule::Saves::input, 2};
inline constexpr FunctionRule kErrorFunction{"erf", FunctionRule::Saves::input, 4};
inline constexpr FunctionRule kInverseErrorFunction{"erfinv", FunctionRule::Saves::input, 4, true};
inline constexpr FunctionRule kExpm1{"expm1", FunctionRule::Saves::result, 1, true};
inline constexpr FunctionRule kLog1p{"log1p", FunctionRule::Saves::input, 1, true};
inline constexpr FunctionRule kLog2{"log2", FunctionRule::Saves::input, 1, true};
inline constexpr FunctionRule kLog10{"log10", FunctionRule::Saves::input, 1, true};
inline constexpr FunctionRule kSoftplus{"softplus", FunctionRule::Saves::input, 0, true};
inline constexpr FunctionRule kLogSigmoid{"logsigmoid", FunctionRule::Saves::input, 0};
inline constexpr FunctionRule kLeakyRelu{"leaky_relu", FunctionRule::Saves::input, 0};
inline constexpr FunctionRule kElu{"elu", FunctionRule::Saves::input, 0};
inline constexpr FunctionRule kHardtanh{"hardtanh", FunctionRule::Saves::input, 0};
inline constexpr FunctionRule kLeakyReluInPlace{"leaky_relu_", FunctionRule::Saves::result, 0};
inline constexpr FunctionRule kEluInPlace{"elu_", FunctionRule::Saves::result, 0};
inline constexpr FunctionRule kHardtanhInPlace{"hardtanh_", FunctionRule::Saves::result, 0};
inline constexpr FunctionRule kSiluInPlace{"silu_", FunctionRule::Saves::input, 0};
inline constexpr FunctionRule kHardswish{"hardswish", FunctionRule::Saves::input, 0};
inline constexpr FunctionRule kHardsigmoid{"hardsigmoid", FunctionRule::Saves::input, 0};
inline constexpr FunctionRule kMish{"mish", FunctionRule::Saves::input, 0};
inline constexpr FunctionRule kFloor{"floor", FunctionRule::Saves::nothing, 0, false, true};
inline constexpr FunctionRule kCeil{"ceil", FunctionRule::Saves::nothing, 0, false, true};
inline constexpr FunctionRule kRound{"round", FunctionRule::Saves::nothing, 0, false, true};
inline constexpr FunctionRule kTruncate{"trunc", FunctionRule::Saves::nothing, 0, false, true};
inline constexpr FunctionRule kSign{"sign", FunctionRule::Saves::nothing, 0, false, true};

Tensor function(const FunctionRule& rule, const Tensor& x);
/// The same in place: the result has x's storage.
Tensor function_in_place(const FunctionRule& rule, const Tensor& x);
/// F.glu(x, dim).
Tensor gated_linear_unit(const Tensor& x, int dimension);
/// x.nan_to_num(): the gradient passes where x is finite.
Tensor nan_to_num(const Tensor& x);
/// x ** exponent of a number.
Tensor power_of(const Tensor& x, double exponent);
/// x % y, x // y, torch.fmod, of tensors or, undefined, of numbers: `x` alone takes a gradient, and only a remainder's passes.
Tensor remainder(const Tensor& x, const Tensor& y);
Tensor floor_quotient(const Tensor& x, const Tensor& y, DType type);
/// target *= other, target -= other: the result has target's storage. Without `other`: of a number.
Tensor multiply_in_place(const Tensor& target, const Tensor& other);
Tensor subtract_in_place(const Tensor& target, const Tensor& other);
/// dropout_(x, p) of a p between 0 and 1: a mask is drawn and scaled, and x multiplied by it (Dropout.cpp, _dropout_impl).
Tensor dropout_in_place(const Tensor& x);
/// target.fill_(number), zero_(): the result has target's storage.
Tensor fill_in_place(const Tensor& target, bool zero);
/// A function in place (exp_, clamp_min_ …) of a tensor whose gradient is not recorded.
Tensor change_in_place(const Tensor& target);
/// torch.lerp(x, end, number).
Tensor interpolated(const Tensor& x, const Tensor& end);
/// torch.addcmul(x, a, b, value=…).
Tensor add_product(const Tensor& x, const Tensor& a, const Tensor& b);
/// The type of an operator of several operands; a tensor of no dimensions does not raise the type of others of its kind.
DType common_type(const Tensor& a, const Tensor& b);
/// The higher of two is what they are promoted to: truths, bytes, whole numbers, floating ones from kFloatingRank.
int promotion_rank(DType type);
inline constexpr int kFloatingRank = 4;

}  // namespace plimsoll::program

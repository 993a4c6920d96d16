#include "program/modules/adapters/fake_quantized.hpp"

#include "program/op.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {
namespace {

/// torch.min(x, zeros_like(x)), or torch.max.
Tensor bounded_by_zero(const Tensor& x) {
  const Tensor zero = zeros(x.tape(), x.sizes(), x.dtype());
  return elementwise(x.tape(), {&x, &zero}, x.dtype());
}

/// _Round: torch.round, behind which the gradient is the one of its result.
Tensor round_straight_through(const Tensor& x) {
  Op op("round", {&x});
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) { b.give(0, b.grad()); });
}

/// x.to(type, copy=True).
Tensor copied_to(const Tensor& x, DType type) { return x.dtype() == type ? clone(x) : to(x, type); }

}  // namespace

/// choose_qparams_affine, asymmetric.
Tensor FakeQuantizer::per_token(const Tensor& x) {
  Tape& tape = x.tape();
  {
    const GradMode frozen(tape, false);
    const int last = x.rank() - 1;
    const Tensor least = extreme(x, {last}, false), most = extreme(x, {last}, false);
    const Tensor below = bounded_by_zero(least), above = bounded_by_zero(most);
    Tensor scale, zero_point;
    {
      const Tensor span = subtract(above, below);
      scale = divide_scalar(span);
    }
    scale = clamp_one_side(scale);
    {
      Tensor whole;
      {
        const Tensor ratio = divide(below, scale);
        whole = round_straight_through(ratio);
      }
      zero_point = add_scalar(whole);
    }
    zero_point = clamp(zero_point);
    const Tensor precise_scale = to(scale, DType::fp32), precise_zero = to(zero_point, DType::fp32);
    scale_ = precise_scale, zero_point_ = precise_zero;
  }
  return rounded(x, x.sizes());
}

/// get_group_qparams_symmetric.
Tensor FakeQuantizer::per_group(const Tensor& weight, std::int64_t group) {
  Tape& tape = weight.tape();
  const Dims grouped{weight.size(0), weight.size(1) / group, group};
  {
    const GradMode frozen(tape, false);
    const Tensor groups = view(weight, grouped);
    const Tensor least = extreme(groups, {2}, false), most = extreme(groups, {2}, false);
    const Tensor below = bounded_by_zero(least), above = bounded_by_zero(most);
    Tensor scale;
    {
      Tensor largest;
      {
        const Tensor turned = negate(below);
        largest = elementwise(tape, {&turned, &above}, above.dtype());
      }
      scale = divide_scalar(largest);
    }
    const Tensor zero_point = filled(tape, scale.sizes(), scale.dtype());
    scale = clamp_one_side(scale);
    const Tensor precise_scale = to(scale, DType::fp32), precise_zero = to(zero_point, DType::fp32);
    scale_ = precise_scale, zero_point_ = precise_zero;
  }
  return rounded(weight, grouped);
}

/// _fake_quantize_affine: quantized and dequantized without a cast to the narrow type. What is clamped is kept for backward.
Tensor FakeQuantizer::rounded(const Tensor& x, const Dims& grouped) const {
  Dims one_each = grouped;
  one_each[grouped.rank() - 1] = 1;
  const auto scale = [&] { return view(scale_, one_each); };
  Tensor quantized;
  {
    Tensor shifted;
    {
      Tensor whole;
      {
        Tensor scaled;
        {
          const Tensor per_scale = scale();
          const Tensor inverse = elementwise(x.tape(), {&per_scale}, per_scale.dtype());
          scaled = multiply(view(x, grouped), inverse);
        }
        whole = round_straight_through(scaled);
      }
      shifted = add(whole, view(zero_point_, one_each));
    }
    quantized = view(clamp(shifted), x.sizes());
  }
  Tensor values = copied_to(view(quantized, grouped), x.dtype());
  {
    const Tensor zero = to(view(zero_point_, one_each), x.dtype());
    values = subtract(values, zero);
  }
  values = multiply(values, scale());
  values = view(values, x.sizes());
  return to(values, x.dtype());
}

}  // namespace plimsoll::program

/// torchao's Float8Linear with dynamic scales (float8_linear.py, float8_ops.py, 0.18): the arguments stay as they are for backward, the
/// casts to 8 bits die with the products that use them.
#pragma once

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// Float8LinearConfig.
struct Float8Recipe {
  bool by_row = false;  ///< a scale per row or column, rounded to powers of two; else one per tensor
  bool pads = false;    ///< pad_inner_dim: both arguments of a product go through F.pad, which copies what needs no padding
};

/// matmul_with_hp_or_float8_args of x and weight [out, in], which may have another type than x. Throws Error (refused): a number of tokens
/// that torch._scaled_mm does not take.
Tensor float8_matmul(const Tensor& x, const Tensor& weight, const Float8Recipe& recipe);

/// Scales per row, in the place of torch.nn.functional.linear (Tape::patched_linear). Throws Error (refused): a bias.
Tensor float8_linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

/// convert_model_to_fp8_ao of accelerate/utils/ao.py: every nn.Linear but the first and the last, where both widths are multiples of 16.
/// Throws Error (refused): a model without such linears, or one whose layers fail on them (Falcon).
void convert_linears_to_float8(Module& root, const Model& model, const Float8Recipe& recipe, Tape& tape);

/// Linears of the scope are float8_linear's where `on`.
class Float8Scope {
 public:
  Float8Scope(Tape& tape, bool on) : tape_(tape), before_(tape.patched_linear) {
    if (on) tape.patched_linear = float8_linear;
  }
  ~Float8Scope() { tape_.patched_linear = before_; }
  Float8Scope(const Float8Scope&) = delete;
  Float8Scope& operator=(const Float8Scope&) = delete;

 private:
  Tape& tape_;
  Tensor (*before_)(const Tensor&, const Tensor&, const Tensor&);
};

}  // namespace plimsoll::program

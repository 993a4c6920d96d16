/// torchao's Float8Linear with dynamic scales per row (float8_linear.py, 0.18): the arguments stay in 16 bits for backward, the casts to
/// 8 bits die with the products that use them.
#pragma once

#include "program/tape.hpp"

namespace plimsoll::program {

/// In the place of torch.nn.functional.linear (Tape::patched_linear). Throws Error (refused): a bias.
Tensor float8_linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

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

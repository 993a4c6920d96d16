/// Operators of one input, as most activation functions are.
#pragma once

#include "program/op.hpp"

namespace plimsoll::program {

/// An operator whose backward is one kernel over the gradient and its input, which it saves; `told` is what tells it from others of that
/// name (Op::tell_number).
Tensor unary_saving_input(const char* name, const Tensor& x, std::int64_t told = 0);

}  // namespace plimsoll::program

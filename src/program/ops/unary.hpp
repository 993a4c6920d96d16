/// Operators of one input, as most activation functions are.
#pragma once

#include "program/op.hpp"

namespace plimsoll::program {

/// An operator whose backward is one kernel over the gradient and its input, which it saves.
Tensor unary_saving_input(const char* name, const Tensor& x);

}  // namespace plimsoll::program

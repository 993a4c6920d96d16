#pragma once

#include "code/interpreter.hpp"

namespace plimsoll::code {

/// Experts of which each runs the rows that its router gave it, in one grouped product.
void define_experts(Interpreter& interpreter);

}  // namespace plimsoll::code

// What of the standard library is told in Python.
#pragma once

#include "code/interpreter.hpp"

namespace plimsoll::code {

/// itertools, operator, inspect, copy, … as far as modelling code uses them.
void define_library_texts(Interpreter& interpreter);

}  // namespace plimsoll::code

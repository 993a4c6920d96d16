// What of libraries is told in Python, and what such texts are told by.
#pragma once

#include <string_view>

#include "code/interpreter.hpp"

namespace plimsoll::code {

/// Puts the shipped texts below that folder of the project over the modules that their paths name.
void put_texts_over(Interpreter& interpreter, std::string_view folder);

/// itertools, operator, inspect, copy, … as far as modelling code uses them.
void define_library_texts(Interpreter& interpreter);

}  // namespace plimsoll::code

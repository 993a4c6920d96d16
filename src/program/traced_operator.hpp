/// Operators of code that runs otherwise where it is traced: what transformers' functions ask is_tracing() about.
#pragma once

#include <initializer_list>

#include "program/tape.hpp"

namespace plimsoll::program {

/// What `name` (a literal) gives within a trace, row-major, told to it alone.
inline Tensor traced(Tape& tape, const char* name, std::initializer_list<const Tensor*> inputs, const Dims& sizes, DType type) {
  const Tensor y = tape.empty(sizes, type);
  tape.trace->ran(name, List<const Tensor*>(inputs), {}, {y});
  return y;
}

}  // namespace plimsoll::program

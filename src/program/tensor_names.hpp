/// Names of tensors in the instructions of a program.
#pragma once

#include <algorithm>
#include <vector>

#include "plimsoll/program.hpp"

namespace plimsoll::program {

inline bool names_a_tensor(const Instruction& instruction) {
  return instruction.kind == InstructionKind::alloc || instruction.kind == InstructionKind::free ||
         instruction.kind == InstructionKind::record_stream;
}

/// One more than the largest name of a tensor in `instructions`; 0 where they name none.
inline TensorId names_in(const std::vector<Instruction>& instructions) {
  TensorId names = 0;
  for (const Instruction& instruction : instructions)
    if (names_a_tensor(instruction)) names = std::max(names, instruction.id + 1);
  return names;
}

}  // namespace plimsoll::program

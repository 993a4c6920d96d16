/// Programs written into the memory of others that nobody needs any more: a rank's is some megabytes.
#pragma once

#include <utility>

#include "program/tape.hpp"

namespace plimsoll::program {

/// What the tape records from here on is written into the memory of `spare`.
inline void record_into_memory_of(StepProgram spare, Tape& tape) {
  for (std::vector<Instruction> StepProgram::*part : {&StepProgram::first_step, &StepProgram::step}) {
    (spare.*part).clear();
    tape.program().*part = std::move(spare.*part);
  }
}

}  // namespace plimsoll::program

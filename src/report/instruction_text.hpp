// Instructions of a program in words.
#pragma once

#include <string>

#include "plimsoll/program.hpp"

namespace plimsoll {

/// What an instruction does to the device or the host, and with how many bytes; empty: it only takes or gives memory.
std::string described(const StepProgram& program, const Instruction& at);

}  // namespace plimsoll

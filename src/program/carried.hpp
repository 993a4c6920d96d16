/// Tensors that live from one step into the next: a module's memory of its last call, gradients that the next step drops.
#pragma once

#include "plimsoll/program.hpp"

namespace plimsoll::program {

/// `step` is played over and over, but was recorded once: what it drops was born in `first_step` or `second_step`, and what it leaves
/// behind has names of its own. Gives each tensor that it leaves the name of the one that it dropped in its place, so that every repetition
/// finds what it drops. Where the new tensor is born before the old one dies, the old one dies just before instead: a name is alive once.
/// Throws Error (internal) when what is left does not match what is dropped, in order, size and stream.
void carry_across_steps(StepProgram& program);

}  // namespace plimsoll::program

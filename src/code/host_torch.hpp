// Names of torch that launch nothing.
#pragma once

#include "code/interpreter.hpp"

namespace plimsoll::code {

/// torch.finfo, torch.compiler, torch.jit, nn.Buffer, … as far as modelling code asks them.
void define_host_torch(Interpreter& interpreter);

}  // namespace plimsoll::code

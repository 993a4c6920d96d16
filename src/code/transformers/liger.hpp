// Liger's kernels: its patches of transformers' classes are its own text, read beside transformers'; what its autograd functions launch is the tape's.
#pragma once

#include "code/interpreter.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::code {

/// The functions of liger_kernel.ops that patched language models call.
void define_liger(Interpreter& interpreter);

/// _apply_liger_kernel_to_instance(model) as Trainer calls it: what the options ask for in the places of the model's own modules and functions. Throws
/// Error: liger_kernel's code is not there; refused: a model type that Liger does not know.
void apply_liger(Interpreter& interpreter, const Value& model, const program::RunOptions& options);

}  // namespace plimsoll::code

/// Modules that a library has put in the place of PyTorch's own: MS-AMP's FP8Linear, Transformer Engine's Linear, torchao's Float8Linear.
#pragma once

#include <functional>

#include "program/module.hpp"

namespace plimsoll::program {

/// The module answers `forward` from now on; its parameters stay its own.
void replace_forward(Module& module, std::function<Tensor(const Tensor& x)> forward);

/// What the module in its place answers; undefined where it was not replaced.
Tensor replaced_forward(Module& module, const Tensor& x);

}  // namespace plimsoll::program

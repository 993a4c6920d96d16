/// Which modules of a network are torch.nn.Linear: those that libraries replace by their own.
#pragma once

#include <vector>

#include "plimsoll/model.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

/// Modules of the nn.Linear below `root`, in the order of torch's modules(). GPT-2's Conv1D are none.
/// Throws Error (refused): a mixture of experts, where which of its products are modules was not read.
std::vector<Module*> linear_modules(Module& root, const Model& model);

}  // namespace plimsoll::program

/// Which modules of a network are torch.nn.Linear: those that libraries replace by their own.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

/// Paths of the model's linears, those of its heads only where `heads`; GPT-2's Conv1D among them.
std::unordered_set<std::string> linear_paths(const Model& model, bool heads);

/// Modules of the nn.Linear below `root`, in the order of torch's modules(). GPT-2's Conv1D are none.
/// Throws Error (refused): a mixture of experts, where which of its products are modules was not read.
std::vector<Module*> linear_modules(Module& root, const Model& model);

}  // namespace plimsoll::program

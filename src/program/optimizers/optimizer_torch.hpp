/// torch.optim's optimizers beside Adam, SGD, Adagrad, RMSprop and Muon, not capturable.
#pragma once

#include <memory>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "program/optimizers/optimizer.hpp"

namespace plimsoll::program {

/// Adadelta, Adamax, ASGD, NAdam, RAdam, Rprop and torch.optim.Adafactor; null for any other kind. `for_loop` is _single_tensor_…,
/// everything else _multi_tensor_…, save for Adafactor, whose default is the loop.
std::unique_ptr<Optimizer> make_torch_optimizer(OptimizerKind kind, OptimizerImpl implementation, Tape& tape,
                                                const std::vector<Tensor>& parameters);

}  // namespace plimsoll::program

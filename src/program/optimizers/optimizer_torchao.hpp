/// torchao.optim.AdamW8bit (transformers' adamw_torch_8bit).
#pragma once

#include <memory>
#include <vector>

#include "program/optimizers/optimizer.hpp"

namespace plimsoll::program {

/// Moments of a byte each, with an fp32 scale for 256 of them.
std::unique_ptr<Optimizer> make_torchao_adam(Tape& tape, std::vector<Tensor> parameters);

}  // namespace plimsoll::program

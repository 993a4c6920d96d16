/// Optimizers beside Adam, SGD and Adafactor: torch.optim's Adagrad, RMSprop and Muon, Lion, and bitsandbytes'.
#pragma once

#include <memory>
#include <vector>

#include "program/optimizers/optimizer.hpp"

namespace plimsoll::program {

/// torch.optim.Adagrad without weight decay: its sums exist from the constructor on.
std::unique_ptr<Optimizer> make_adagrad(Tape& tape, std::vector<Tensor> parameters, OptimizerImpl implementation);
/// torch.optim.RMSprop, neither centred nor with momentum.
std::unique_ptr<Optimizer> make_rmsprop(Tape& tape, std::vector<Tensor> parameters, OptimizerImpl implementation);
/// lion_pytorch.Lion: parameter by parameter.
std::unique_ptr<Optimizer> make_lion(Tape& tape, std::vector<Tensor> parameters);
/// torch.optim.Muon over the layers' matrices, then torch.optim.AdamW over all else (embeddings, heads, norms, biases).
std::unique_ptr<Optimizer> make_muon(Tape& tape, const std::vector<Tensor>& matrices, std::vector<Tensor> others);
/// peft's LoraFAOptimizer: Adam on lora_B, whose gradients are projected; lora_A is frozen.
std::unique_ptr<Optimizer> make_lora_fa(Tape& tape, std::vector<Tensor> parameters);
/// bitsandbytes' optimizers; null for any other kind. Throws Error (refused): gradients of a type that the optimizer has no kernel for.
std::unique_ptr<Optimizer> make_bitsandbytes(OptimizerKind kind, Tape& tape, const std::vector<Tensor>& parameters);

}  // namespace plimsoll::program

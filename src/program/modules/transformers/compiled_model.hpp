/// torch.compile of a whole model of transformers.
#pragma once

#include <functional>
#include <memory>

#include "program/modules/network.hpp"

namespace plimsoll::program {

/// Makes the model's network, whose parameters and buffers lie in `root`, on `tape`.
using NetworkFactory = std::function<std::unique_ptr<Network>(const RunOptions& options, Module& root, Tape& tape)>;

/// The model whose forward, loss and all, is one graph of the compiler's (inductor/), or where Dynamo breaks it or DDP's buckets cut it
/// several. What the caller sees beside the loss is an output, too.
std::unique_ptr<Network> make_compiled_model(NetworkFactory make, const RunOptions& options, Module& root, Tape& tape);

}  // namespace plimsoll::program

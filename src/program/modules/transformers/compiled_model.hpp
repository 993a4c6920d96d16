/// torch.compile of a whole model of transformers.
#pragma once

#include <functional>
#include <memory>

#include "program/modules/network.hpp"

namespace plimsoll::program {

/// Makes the model's network, whose parameters and buffers lie in `root`, on `tape`.
using NetworkFactory = std::function<std::unique_ptr<Network>(const RunOptions& options, Module& root, Tape& tape)>;

/// The model whose forward, loss and all, is one graph of the compiler's (inductor/), or where Dynamo breaks it several. What the caller
/// sees beside the loss is an output, too. Under autocast, with checkpoints, and within DDP, whose buckets cut it, it is what `make_told`
/// makes, whose graphs are told by hand: there measured rows hold them better. None: the compiler's everywhere.
std::unique_ptr<Network> make_compiled_model(NetworkFactory make, NetworkFactory make_told, const RunOptions& options, Module& root,
                                             Tape& tape);

}  // namespace plimsoll::program

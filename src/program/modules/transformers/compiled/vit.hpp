/// A layer of ViT or DeiT as one graph of torch.compile.
#pragma once

#include "plimsoll/model.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

/// Throws Error (refused): a layer whose compiled graph is not known.
void check_compiled_vit(Module& layer, const Block& block);

/// The layer's forward as one operator on the tape; `checkpointed` keeps the graph's inputs alone.
Tensor compiled_vit_layer(Module& layer, const Block& block, const Tensor& hidden, bool checkpointed);

}  // namespace plimsoll::program

/// A layer of GPT-NeoX as one graph of torch.compile.
#pragma once

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/layers.hpp"

namespace plimsoll::program {

/// Throws Error (refused): a layer whose compiled graph is not known.
void check_compiled_gpt_neox(const Block& block);

/// The layer's forward as one operator on the tape; `checkpointed` keeps the graph's inputs alone.
Tensor compiled_gpt_neox_layer(Module& layer, const Block& block, const Tensor& hidden, const RotaryTables& tables, bool checkpointed);

}  // namespace plimsoll::program

/// A decoder layer of llama, mistral or qwen2 as one graph of torch.compile.
#pragma once

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/layers.hpp"

namespace plimsoll::program {

/// Throws Error (refused): a layer whose compiled graph is not known.
void check_compiled_rotary(const Block& block);

/// The layer's forward as one operator on the tape: what AOTAutograd's partitioner saves, in the buffers of the code that Inductor
/// generates. Gradient checkpointing is part of the graph: `checkpointed` keeps the graph's inputs alone.
Tensor compiled_rotary_layer(Module& layer, const Block& block, const Tensor& hidden, const RotaryTables& tables, bool checkpointed);

}  // namespace plimsoll::program

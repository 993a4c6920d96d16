/// A decoder layer of OPT as one graph of torch.compile.
#pragma once

#include "plimsoll/model.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

/// Throws Error (refused): a layer whose compiled graph is not known.
void check_compiled_opt(const Block& block);

/// The layer's forward as one operator on the tape: what AOTAutograd's partitioner saves, in the buffers of the code that Inductor
/// generates. Gradient checkpointing is part of the graph: `checkpointed` keeps the graph's inputs alone.
Tensor compiled_opt_layer(Module& module, const Block& block, const Tensor& hidden, bool checkpointed);

}  // namespace plimsoll::program

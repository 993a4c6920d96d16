/// A decoder layer of llama or of a family near it as one graph of torch.compile.
#pragma once

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/layers.hpp"

namespace plimsoll::program {

/// What a family calls the parts of its layers, and how it turns its heads.
struct CompiledNames {
  const char *output = "o_proj", *q_norm = "q_norm", *k_norm = "k_norm", *up = "up_proj", *down = "down_proj";
  Rotation rotation;
  bool fp32_tables;  ///< whatever the type of the stream
};

/// Throws Error (refused): a layer whose compiled graph is not known.
void check_compiled_rotary(const Block& block, Rotation rotation);

/// The layer's forward as one operator on the tape: what AOTAutograd's partitioner saves, in the buffers of the code that Inductor
/// generates. Gradient checkpointing is part of the graph: `checkpointed` keeps the graph's inputs alone. `mask`, where there is
/// one, says which keys each query sees.
Tensor compiled_rotary_layer(Module& layer, const Block& block, const CompiledNames& names, const Tensor& hidden,
                             const RotaryTables& tables, const Tensor& mask, bool checkpointed);

}  // namespace plimsoll::program

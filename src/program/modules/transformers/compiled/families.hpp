/// Layers of transformers' families as one graph of torch.compile each. A layer's forward is one operator on the tape: what AOTAutograd's
/// partitioner saves, in the buffers of the code that Inductor generates. Gradient checkpointing is part of the graph: `checkpointed` keeps
/// the graph's inputs alone. The checks throw Error (refused) for a layer whose compiled graph is not known.
#pragma once

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/layers.hpp"

namespace plimsoll::program {

struct CompiledDecoder;

/// What a relative of llama calls the parts of its layers, and how it turns its heads.
struct CompiledNames {
  const char *output = "o_proj", *q_norm = "q_norm", *k_norm = "k_norm", *up = "up_proj", *down = "down_proj";
  Rotation rotation;
  bool fp32_tables;  ///< whatever the type of the stream
};

/// llama's relatives. `mask`, where there is one, says which keys each query sees.
void check_compiled_rotary(const Block& block, Rotation rotation);
Tensor compiled_rotary_layer(Module& layer, const Block& block, const CompiledNames& names, const Tensor& hidden,
                             const RotaryTables& tables, const Tensor& mask);

/// The same layers within the graph of a whole model, whose embeddings have sizes `hidden`: adds their weights to `decoder`.
void add_compiled_rotary_layer(CompiledDecoder& decoder, Module& layer, const Block& block, const CompiledNames& names, const Dims& hidden,
                               bool checkpointed);

void check_compiled_gpt2(const Block& block);
Tensor compiled_gpt2_block(Module& module, const Block& block, const Tensor& hidden, bool checkpointed);
void add_compiled_gpt2_block(CompiledDecoder& decoder, Module& module, const Block& block, const Dims& hidden);

void check_compiled_opt(const Block& block);
Tensor compiled_opt_layer(Module& module, const Block& block, const Tensor& hidden);

/// ViT and DeiT.
void check_compiled_vit(Module& layer, const Block& block);
Tensor compiled_vit_layer(Module& layer, const Block& block, const Tensor& hidden);

}  // namespace plimsoll::program

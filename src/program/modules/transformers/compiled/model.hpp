/// A whole decoder with its loss under torch.compile(model), as the graphs that AOTAutograd makes of it.
#pragma once

#include <vector>

#include "program/modules/transformers/compiled/operator.hpp"

namespace plimsoll::program {

/// What the graph reads beside its layers' weights, and how it begins and ends.
struct CompiledDecoder {
  Tensor ids, labels;                     ///< [batch, length] int64
  Tensor table;                           ///< the embedding [vocabulary, hidden]
  Tensor position_table;                  ///< of learned positions [positions, hidden]; undefined: none
  bool embedding_dropout = false;         ///< of both embeddings' sum
  Tensor frequencies;                     ///< of the rotation, whose tables every kernel that turns computes for itself; undefined: none
  Tensor norm_weight, norm_bias;          ///< of the norm behind the last layer
  Tensor head;                            ///< [vocabulary, hidden]; the same tensor as `table` where they are tied
  bool ends_at_logits = false;            ///< Dynamo breaks the graph before the loss, which is one of its own
  std::vector<CompiledArguments> layers;  ///< their weights; what enters a layer is made by the graph
  CompiledShape shape;                    ///< of every layer, as with_arguments completes it
};

struct CompiledOutputs {
  Tensor loss, logits;
};

/// The model's forward. Attention has a mask, because transformers takes every traced batch for a packed one (masking_utils.py,
/// find_packed_sequence_indices). What the caller sees beside the loss is an output of its graph, whose backward is given zeros for it: the
/// logits, or where the graph ends at them the last norm's output.
CompiledOutputs compiled_decoder(const CompiledDecoder& decoder);

}  // namespace plimsoll::program

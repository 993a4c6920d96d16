/// What experts do with the rows that were dispatched to them: products with a gated activation between, on one rank.
/// Sources: megatron/core/transformer/moe/experts.py, fusions/fused_bias_swiglu.py and fused_bias_geglu.py of Megatron-core 0.16.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/megatron/adapters.hpp"
#include "program/modules/megatron/runtime.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// `rows` in as many equal parts; what is over belongs to the last.
std::vector<std::int64_t> even_split(std::int64_t rows, std::size_t parts);

/// Whether experts with that activation are modelled: gated by silu, by gelu, or by gpt-oss' clamped quick gelu ("clamped_swiglu").
bool knows_expert_activation(const MoeSpec& spec);

/// gate(first half) · second half · weight of the row: x [rows, 2 · width], weights [rows, 1] → [rows, width].
/// `fuses_swiglu`: bias_swiglu_fusion.
Tensor expert_activation(const MoeSpec& spec, const Tensor& x, const Tensor& weights, bool fuses_swiglu);

/// Whose layers an expert of SequentialMLP is made of.
struct ExpertLayers {
  bool te = false;           ///< Transformer Engine's; else local ones
  bool fuses_swiglu = true;  ///< bias_swiglu_fusion
  AdapterPlace adapters;     ///< beside their linears, whichever have one
};

/// SequentialMLP's expert: tokens [rows, hidden] and their probabilities [rows].
Tensor expert_mlp(MegatronRuntime& runtime, Module& mlp, const MoeSpec& spec, const Tensor& tokens, const Tensor& probabilities,
                  const ExpertLayers& layers);

/// How TEGroupedMLP runs a rank's experts.
struct GroupedExperts {
  std::int64_t experts = 1;            ///< of this rank
  bool recomputes_activation = false;  ///< selective recomputation of moe_act
  bool pads = false;                   ///< quantized products take other numbers of rows than the router gives
  bool fuses_swiglu = true;            ///< bias_swiglu_fusion
  bool fused = false;                  ///< products, activation and quantization are one kernel each (use_transformer_engine_op_fuser)
  AdapterPlace adapters;               ///< beside their linears, one for all experts of the rank (share_expert_adapters)
};

/// Rows of all experts when each has a multiple of what a product of the recipe takes (get_align_size_for_quantization).
std::int64_t padded_rows(const MegatronRuntime& runtime, std::int64_t rows, std::int64_t experts);

/// TEGroupedMLP.forward: all of a rank's experts at once, rows in the order of the experts.
Tensor grouped_expert_mlp(MegatronRuntime& runtime, Module& experts, const MoeSpec& spec, const Tensor& tokens, const Tensor& probabilities,
                          const GroupedExperts& options);

}  // namespace plimsoll::program

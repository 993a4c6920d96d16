/// What of a model and a strategy Megatron-core's GPTModel is built by.
/// Source: megatron/core/transformer/transformer_config.py, models/gpt/gpt_layer_specs.py of Megatron-core 0.16.1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/lower.hpp"
#include "program/module.hpp"
#include "program/modules/megatron/moe.hpp"
#include "program/modules/megatron/runtime.hpp"
#include "program/modules/megatron/te_attention.hpp"

namespace plimsoll::program {

/// MultiTokenPredictionBlock: modules behind the decoder, each of which predicts one token more.
struct PredictionConfig {
  std::int64_t depth = 0;            ///< 0: none
  bool repeated = false;             ///< one module's weights serve all depths (mtp_use_repeated_layer)
  std::vector<const Block*> layers;  ///< of each module, in order

  /// Modules that are built.
  std::int64_t built() const { return repeated ? std::min<std::int64_t>(depth, 1) : depth; }
};

/// Linears whose products have a recipe of their own: the first whose pattern fits a module's path (quant_recipe).
struct ModuleRecipe {
  std::string pattern;  ///< a path with * for any part of it
  TeQuantization recipe;
};

/// What TransformerConfig says, for all layers alike.
struct MegatronConfig {
  DType type = DType::bf16;                 ///< of parameters and activations
  std::int64_t hidden = 0, vocabulary = 0;  ///< vocabulary padded to all ranks
  std::int64_t positions = 0;               ///< rows of the learned position table; 0: rotary
  double hidden_dropout = 0;
  bool flash = false;            ///< torch's SDPA as the core attention; else DotProductAttention
  bool fused_softmax = false;    ///< of DotProductAttention: masked_softmax_fusion, where the kernel takes such scores
  bool persistent_norm = false;  ///< apex's FastLayerNorm, from which Transformer Engine's is made
  bool te = false;               ///< Transformer Engine's modules; else Megatron's own
  TeQuantization quantization;
  std::vector<ModuleRecipe> recipes;                             ///< beside it
  TeQuantization sixteen_bits;                                   ///< that of layers whose products are not quantized
  std::int64_t sixteen_bit_tail = 0;                             ///< last layers of the model that are such (num_layers_at_end_in_bf16)
  bool eight_bit_activations = false;                            ///< the gated activation saves its input in 8 bits
  bool fused_rotary = false;                                     ///< Transformer Engine's rotary kernel
  bool fuses_swiglu = true;                                      ///< bias_swiglu_fusion
  bool fuses_dropout = true;                                     ///< bias_dropout_fusion, which TEGroupedMLP refuses beside biases
  bool keeps_dummies = true;                                     ///< Transformer Engine's dummy gradients live for ever
  AttentionLibrary attention_library = AttentionLibrary::cudnn;  ///< of Transformer Engine
  TeAttention attention;                                         ///< of Transformer Engine
  std::optional<Lora> lora;
  std::vector<std::string> adapted;  ///< linears that get an adapter, by Megatron's names
  LossKernel loss = LossKernel::vocab_parallel;
  bool tied = false;
  std::int64_t rotary = 0;     ///< dimensions of a head that one table turns; 0: none, or latent attention's own
  bool latent = false;         ///< multi-head latent attention
  bool routes_tokens = false;  ///< some layers are mixtures of experts
  std::int64_t pipeline = 1;
  ExpertOptions experts;
  Recompute recompute;
  std::int64_t offloaded_layers = 0;  ///< whose activations go to the host
  NormSpec norm;
  std::vector<const Block*> layers;  ///< of the whole model, in order
  PredictionConfig prediction;

  /// The recipe of the module at that path of layer `layer` of the model (no layer: -1), where it is not all modules'; else null.
  const TeQuantization* own_recipe(std::string_view path, std::int64_t layer) const;
};

/// Throws Error (refused): whatever of the model or the strategy is not modelled for Megatron-core.
MegatronConfig megatron_config(const Model& model, const Strategy& strategy, const TargetDevice& device);

/// How Transformer Engine multiplies in 8 bits. Throws Error (refused): a recipe that is not modelled.
TeQuantization te_quantization(const Strategy& strategy, const TargetDevice& device);

}  // namespace plimsoll::program

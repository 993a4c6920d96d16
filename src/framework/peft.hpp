/// What PEFT decides where its user says nothing.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::framework {

/// Fills `strategy.peft`: the modules that PEFT trains in a model of this type (peft/utils/constants.py), an encoder as wide as the model,
/// and as many virtual tokens as the run's `trainable_params` hold. Throws Error: no table for the model's type, or nothing says how many
/// virtual tokens there are; refused: prefix tuning, sharded parameters, models that are no causal language models.
void complete_peft(Strategy& strategy, const Model& model);

/// The type that PEFT gives adapters beside weights of that type, where nobody says one: fp32 (autocast_adapter_dtype), but from 0.7 to
/// 0.11 the weights' own (huggingface/peft pull request 1706; before, issue 1090).
DType adapter_type(const Release& peft, DType weights);

/// What _convert_peft_config_moe (PEFT 0.21) makes of a list of targets: names of linears, and which parameters of a mixture's blocks.
struct MixtureTargets {
  std::vector<std::string> linears;
  bool router = false, gate_up = false, down = false;
  bool any() const { return router || gate_up || down; }
};

/// PEFT's word for every linear but the output embeddings, in the place of a list of targets.
inline constexpr const char* kAllLinear = "all-linear";

/// The targets for this model. Names that transformers 4 gave a mixture's linears become parameters in the model types that PEFT maps to
/// mixtral's or qwen2_moe's; all-linear names them, too. Throws Error (refused): such a type whose mixture is not modelled; bad input: one
/// of two projections that are stored as one.
MixtureTargets mixture_targets(const Model& model, const std::vector<std::string>& targets);

/// Elements of the adapters of those parameters, in the whole model.
std::int64_t mixture_adapter_elements(const Model& model, const MixtureTargets& targets, std::int64_t rank);

/// Last names of the linears of a model's layers, which adapters are put to: "q_proj", "k_proj".
std::vector<std::string> linear_names(const Model& model);

}  // namespace plimsoll::framework

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

/// Last names of the linears of a model's layers, which adapters are put to: "q_proj", "k_proj".
std::vector<std::string> linear_names(const Model& model);

}  // namespace plimsoll::framework

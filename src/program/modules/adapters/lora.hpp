/// PEFT's low-rank adapters put into a tree of modules.
#pragma once

#include "plimsoll/strategy.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

/// get_peft_model: every linear whose path ends in a target becomes lora.Linear (base_layer, lora_A, lora_B and, for DoRA, a vector of
/// magnitudes); `modules_to_save` get a frozen original beside what is trained; all else is frozen.
/// Throws Error (refused): adapters of embeddings or of a mixture's router; bad input: no module of a target's name.
void add_lora(Module& root, const Model& model, const Lora& lora, DType adapter_type, Tape& tape);

/// A parameter that PEFT adds, trained; not yet on the device.
std::shared_ptr<Parameter> trained_parameter(const char* name, const Dims& sizes, DType type);

/// The linears among the model's modules that a list of targets names (a path is a target or ends in a dot and the target; or all-linear).
/// Throws Error (refused): a target that is no linear, all linears of what is no language model; bad input: no module of a target's name
/// (`key` is what named them).
std::vector<Module*> targeted_linears(Module& root, const Model& model, const std::vector<std::string>& targets, const char* key);
/// Whether a list of targets names this module.
bool targeted(const Module& module, const std::vector<std::string>& targets);

/// create_lorafa_optimizer: only lora_B is trained.
void freeze_lora_a(Module& root);

/// lora.Linear.forward behind its base layer's `result` for `input`: result + lora_B(lora_A(dropout(x))) * scaling, or DoRA's update; cast
/// back to the result's type.
Tensor lora_adapted(Module& module, Tape& tape, const Tensor& input, Tensor result);

}  // namespace plimsoll::program

/// PEFT's low-rank adapters put into a tree of modules.
#pragma once

#include "plimsoll/strategy.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

/// get_peft_model: every linear whose name is a target becomes lora.Linear (base_layer, lora_A, lora_B); all else is frozen.
/// Throws Error (refused): DoRA, modules_to_save; bad input: no module of a target's name.
void add_lora(Module& root, const Lora& lora, DType adapter_type, Tape& tape);

}  // namespace plimsoll::program

#include "program/modules/lora.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"

namespace plimsoll::program {

namespace {

void add_adapter(Module& linear, const char* name, Dims sizes, DType type) {
  Module& adapter = linear.child(name, true).child("default", true);
  adapter.parameters.push_back(std::make_shared<Parameter>(
      Parameter{.name = "weight", .sizes = sizes, .type = type, .trainable = true, .expert = false, .cut = Cut::replicated, .tensor = {}}));
}

void adapt(Module& linear, const Lora& lora, DType type) {
  const Dims sizes = linear.find_parameter("weight")->sizes;
  Module& base = linear.child("base_layer", true);
  base.parameters = std::move(linear.parameters);
  linear.parameters.clear();
  add_adapter(linear, "lora_A", {lora.r, sizes[1]}, type);
  add_adapter(linear, "lora_B", {sizes[0], lora.r}, type);
}

}  // namespace

void add_lora(Module& root, const Lora& lora, DType adapter_type, Tape& tape) {
  if (lora.dora) refuse("DoRA adapters are not modelled");
  if (!lora.modules_to_save.empty()) refuse("modules_to_save of LoRA are not modelled");
  for (const auto& parameter : root.all_parameters()) parameter->trainable = false;
  bool found = false;
  for (Module* module : root.all_modules()) {
    const bool target = std::find(lora.targets.begin(), lora.targets.end(), module->name()) != lora.targets.end();
    if (!target || !module->find_parameter("weight")) continue;
    adapt(*module, lora, adapter_type);
    found = true;
  }
  if (!found) fail("no module of the model is a LoRA target", "lora.target_modules");
  for (Module* module : root.all_modules()) module->label = tape.intern(module->path);
}

}  // namespace plimsoll::program

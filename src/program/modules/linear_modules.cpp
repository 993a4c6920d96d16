#include "program/modules/linear_modules.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::program {

std::unordered_set<std::string> linear_paths(const Model& model, bool heads) {
  std::unordered_set<std::string> paths;
  for (const Block& block : model.blocks) {
    if (!heads && block.role == Block::Role::head) continue;
    for (std::int64_t i = 0; i < block.repeat; ++i) {
      for (const Operator& op : block.operators) {
        if (op.kind != OperatorKind::linear) continue;
        for (const ParameterTensor& tensor : op.parameters) {
          const std::string full = full_name(block, i, tensor);
          paths.insert(full.substr(0, full.rfind('.')));
        }
      }
    }
  }
  return paths;
}

std::vector<Module*> linear_modules(Module& root, const Model& model) {
  for (const Block& block : model.blocks)
    if (block.moe) refuse("8-bit linears of a mixture of experts are not modelled for transformers", "precision");
  const std::unordered_set<std::string> paths = linear_paths(model, true);
  const bool layers_are_conv1d = model.model_type == "gpt2";
  std::vector<Module*> linears;
  for (Module* module : root.all_modules()) {
    if (paths.count(module->path) == 0 || !module->find_parameter("weight")) continue;
    if (layers_are_conv1d && module->path != "lm_head") continue;
    linears.push_back(module);
  }
  return linears;
}

}  // namespace plimsoll::program

#include "program/modules/linear_modules.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::program {

std::vector<Module*> linear_modules(Module& root, const Model& model) {
  for (const Block& block : model.blocks)
    if (block.moe) refuse("8-bit linears of a mixture of experts are not modelled for transformers", "precision");
  std::vector<Module*> linears;
  for (Module* module : root.all_modules())
    if (module->linear == WeightLayout::out_in && module->find_parameter("weight")) linears.push_back(module);
  return linears;
}

}  // namespace plimsoll::program

/// The modules of a model chunk that Megatron-FSDP hooks.
#pragma once

#include <vector>

#include "program/module.hpp"

namespace plimsoll::program {

struct MegatronFsdpModules {
  Module* root = nullptr;        ///< GPTModel: its output starts backward
  std::vector<Module*> layers;   ///< TransformerLayer, each a unit of its own where parameters are sharded
  std::vector<Module*> outside;  ///< modules with parameters that lie in no layer
};

}  // namespace plimsoll::program

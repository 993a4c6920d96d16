/// Wrap lists: which modules are one unit of FSDP.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

/// The units of a wrap list, in order, without the root. An entry is the class of the repeated layers ("LlamaDecoderLayer": one unit
/// each), a path with * for one component ("layers.*"), or several paths joined by + that share a unit ("norm+lm_head"). An empty list
/// means the repeated layers. Throws Error: an entry that names no module of the model.
std::vector<std::vector<Module*>> wrap_units(const Model& model, Module& root, const std::vector<std::string>& entries);

/// The modules of the repeated layers, in order.
std::vector<Module*> layer_modules(const Model& model, Module& root);

}  // namespace plimsoll::program

/// Wrap lists: which modules are one unit of FSDP.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

/// The units of a wrap list, in order, without the root. An entry is the class of the repeated layers ("LlamaDecoderLayer": one unit
/// each), a path with * for one component ("layers.*"), or several paths joined by + that share a unit ("norm+lm_head"). An empty list
/// means the repeated layers, "none" alone no unit. Throws Error: an entry that names no module of the model.
std::vector<std::vector<Module*>> wrap_units(const Model& model, Module& root, const std::vector<std::string>& entries);

/// The units of FSDP1's size_based_auto_wrap_policy, inner ones first: what is left of a module of at least `least` parameters when the
/// large modules below it are units of their own, where that is as much again. Lists of modules are none. Source:
/// torch/distributed/fsdp/wrap.py, _recursive_wrap.
std::vector<Module*> units_by_size(Module& root, std::int64_t least);

/// Modules that are not to be split (_no_split_modules): the repeated layers, or what the classes say of a model that is read from code.
std::vector<Module*> unsplit_modules(const Model& model, Module& root);

/// The units that the strategy asks for; of Accelerate, where it names none, the modules that are not to be split.
std::vector<std::vector<Module*>> prepared_units(const Model& model, Module& root, const Strategy& strategy);

/// Modules whose class is known by that name, in order.
std::vector<Module*> modules_of_class(Module& root, const std::string& name);

/// The modules of the repeated layers, in order.
std::vector<Module*> layer_modules(const Model& model, Module& root);

}  // namespace plimsoll::program

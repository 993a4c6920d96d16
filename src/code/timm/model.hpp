// Models of timm by the package's own code: a name, or the hub's config.json, which says its architecture.
#pragma once

#include <memory>

#include "code/interpreter.hpp"
#include "code/package.hpp"
#include "plimsoll/code.hpp"

namespace plimsoll::code {

/// Whether the package is timm.
bool is_timm(const PackageModel& package);

/// The model that timm.create_model makes, whose step classifies images. Throws Error: see model_of_package.
Model model_of_timm(const PackageModel& package);

/// Makes timm.create_model known to an interpreter, by that package's code.
void define_timm(Interpreter& interpreter, std::shared_ptr<const Package> timm);

}  // namespace plimsoll::code

// Transformers of diffusers by the package's own code: a configuration whose _class_name names one.
#pragma once

#include "plimsoll/code.hpp"

namespace plimsoll::code {

/// Whether the configuration is diffusers'.
bool names_class_of_diffusers(const PackageModel& package);

/// The class's model, whose forward predicts what diffusers' scripts compare. Throws Error: see model_of_package; a class whose inputs are
/// not known and that the package's `inputs` do not tell.
Model model_of_diffusers(const PackageModel& package);

}  // namespace plimsoll::code

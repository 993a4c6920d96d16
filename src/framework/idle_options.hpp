// Options that a run was given and that say nothing about it.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/framework.hpp"

namespace plimsoll::framework {

/// A key of `strategy_options()` that changes neither the program nor any number of this run.
struct IdleOption {
  std::string key;   ///< as it was spelled
  std::string when;  ///< it is not used: "without a pipeline (pp above 1)"
};

/// Those of `resolved.file_keys` and `resolved.options`, in their order, that the run has no use for; a key that acts here by its kind may still be set to what is
/// so anyway.
std::vector<IdleOption> idle_options(const Strategy& resolved, const Model& model);

}  // namespace plimsoll::framework

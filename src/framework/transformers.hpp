// What of transformers' classes depends on its release.
#pragma once

#include <string>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::framework {

/// Whether a model type's classes have scaled dot-product attention (_supports_sdpa): where nothing is said, classes without it take the
/// eager one.
bool has_sdpa(const std::string& model_type, const Release& release);

/// gradient_checkpointing_enable()'s use_reentrant where nothing is said: true before 5.0 (modeling_utils.py).
bool checkpoints_reentrantly(const Strategy& s);

}  // namespace plimsoll::framework

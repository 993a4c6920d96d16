// What a strategy's PyTorch is too old for.
#pragma once

#include "plimsoll/strategy.hpp"

namespace plimsoll {

/// Until 2.0 (March 2023): zero_grad() fills gradients with zeros and keeps them, and optimizers loop over the parameters by default.
inline bool before_torch_2(const Strategy& strategy) { return !strategy.releases.of(Package::torch).since(2, 0); }

}  // namespace plimsoll

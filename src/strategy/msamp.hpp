// MS-AMP among the precisions.
#pragma once

#include "plimsoll/strategy.hpp"

namespace plimsoll {

/// Whether msamp.initialize stands before the training loop.
constexpr bool is_msamp(Precision precision) {
  return precision == Precision::msamp_o1 || precision == Precision::msamp_o2 || precision == Precision::msamp_o3;
}

}  // namespace plimsoll

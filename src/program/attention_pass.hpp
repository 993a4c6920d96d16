/// What cuDNN launches for a pass of attention: lowered, seen in a rehearsal, and timed as a whole by a calibration.
#pragma once

#include <vector>

#include "plimsoll/kernel.hpp"

namespace plimsoll {

/// The kernels of a pass whose main kernel is given, in their order: forward that alone, backward δ, the main one, dQ to 16 bits and, where
/// query heads share a key head, the sums over them.
std::vector<Attention> kernels_of_pass(const Attention& main);

}  // namespace plimsoll

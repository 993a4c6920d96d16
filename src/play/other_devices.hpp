// A process that has several devices: its program played as what one of them sees.
#pragma once

#include <vector>

#include "plimsoll/play.hpp"

namespace plimsoll {

/// As play_time: kernels and collectives of the streams that are `elsewhere` run on another device, and take nothing of the compute stream's.
Timeline play_time(const StepProgram& program, const Pricing& pricing, const std::vector<bool>& elsewhere);

}  // namespace plimsoll

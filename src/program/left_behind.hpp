/// What further runs of a repeated stretch leave alive.
#pragma once

#include <cstddef>
#include <vector>

#include "plimsoll/program.hpp"

namespace plimsoll::program {

/// `repeated` of `part` is written once. What one run of it leaves alive up to instruction `until` (the losses of a step's micro-batches
/// with what they hold, gradients that were sent) is allocated for each further run as well, where the one that is written is, and dies
/// where it does. New tensors are named from `next` on. `repeated` grows by what is added within.
void add_left_behind(std::vector<Instruction>& part, Repeated& repeated, std::size_t until, TensorId& next);

}  // namespace plimsoll::program

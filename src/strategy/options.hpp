// The parts of the table of keys, and what several of them share.
#pragma once

#include <vector>

#include "strategy/setting.hpp"

namespace plimsoll::strategy {

/// DeepSpeed's JSON below `deepspeed`, and what its launchers say beside it.
const std::vector<Entry>& deepspeed_entries();

/// What a step runs: recomputation, attention, losses, compilation, experts, the allocator.
const std::vector<Entry>& kernel_entries();

/// What Accelerate's launcher and configuration file say of precision.
const std::vector<Entry>& accelerate_entries();

/// How weights, gradients and states are held; bf16 and fp16 leave open by which recipe, which another key may say.
void put_precision(Setting& x, Precision precision);
/// false, true, a norm: whether gradients are clipped; the norm itself changes nothing.
void set_clip(Setting& x);
/// 0 … 3
void set_zero_stage(Setting& x);

}  // namespace plimsoll::strategy

/// DeepSpeed's releases.
#pragma once

#include "plimsoll/release.hpp"

namespace plimsoll::framework {

/// 0.14 to 0.16: releases before 0.17, whose steps allocate the same but for a scalar or two (0.14.4, 0.15.4 and 0.16.9 were run).
inline bool is_deepspeed_before_0_17(const Release& release) { return release.since(0, 14) && !release.since(0, 17); }

}  // namespace plimsoll::framework

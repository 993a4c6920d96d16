// A host that is slower than the one whose pace is given.
#pragma once

#include "plimsoll/play.hpp"

namespace plimsoll {

/// All that a host does takes `slowdown` times as long, but for bytes that its memory moves.
void slow_down(HostPace& host, double slowdown);

}  // namespace plimsoll

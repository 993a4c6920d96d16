// What of nanotron changed while its published sweep ran.
#pragma once

#include "plimsoll/strategy.hpp"

namespace plimsoll::framework {

/// The pipeline before 27 December 2024 (a date as `framework_version`): a rank waits on the host for what it sends, too, and a stage whose
/// blocks cost exactly its share takes one more.
bool nanotron_waits_for_sends(const Strategy& strategy);

}  // namespace plimsoll::framework

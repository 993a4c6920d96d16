// What of nanotron changed while its published sweep ran.
#pragma once

#include "plimsoll/strategy.hpp"

namespace plimsoll::framework {

/// The pipeline before 27 December 2024 (nanotron's code is told by dates): a rank waits on the host for what it sends, too, and a stage whose
/// blocks cost exactly its share takes one more.
bool nanotron_waits_for_sends(const Strategy& strategy);

/// Whether the hosts of a group wait for each other at every collective where a run spans several nodes: those of pipelines, and from the
/// sweep's runs of 26 December 2024 on all. What made them is not known, step times tell: a collective then takes a fixed time per rank of
/// its group, whatever its bytes, within a node too.
bool nanotron_hosts_meet(const Strategy& strategy);

}  // namespace plimsoll::framework

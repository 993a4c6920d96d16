// Which host a run has: what its software makes of it, and in a step of nanotron's whether the device or its host is the slower one.
#pragma once

#include "plimsoll/hardware.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/play.hpp"
#include "plimsoll/program.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

/// Sets PlayMemoryOptions::launches_behind and behind_in_stalls_only. The host is a whole launch queue ahead where kernels and
/// tensor-parallel collectives take longer than the host over those collectives (hardware/hosts.json); where the hosts of a group meet at
/// each, that time grows with the group. Where they do not take longer, it gets ahead only while some peer is late: in a pipeline when the
/// program says so, else, unless hosts meet, sooner or later in a step of many micro-batches. A step of one or two micro-batches is as far
/// behind as its own passes make it.
void set_launches_behind(PlayMemoryOptions& options, const StepProgram& program, const Cluster& cluster, const Strategy& resolved);

/// What the host takes longer for under software that is slower than that whose pace is given (hardware/hosts.json, "software").
void set_software_pace(Pricing& pricing, const Strategy& resolved);

/// What nanotron's hosts hold up, by the code of the day (framework/nanotron.hpp): a host's time for every collective; where the hosts of a
/// group meet, the least that a tensor-parallel collective takes; and what a message of its pipeline took before 27 December 2024.
void set_nanotron_pace(Pricing& pricing, const Strategy& resolved);

}  // namespace plimsoll::estimation

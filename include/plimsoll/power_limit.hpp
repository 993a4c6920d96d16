/// Boards that are held to less power than they could draw: nvidia-smi -pl, amd-smi set --power-cap.
#pragma once

#include <string>
#include <string_view>

#include "plimsoll/hardware.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// The cluster with boards that may draw no more than `limit`. What products and attention draw in board powers, and so how long they take
/// (docs/hardware.md), grows as (power / limit)^x (hardware/kernels.json, power_exponent: a clock falls slower than the power that it is
/// given); what the rest of a step draws grows in proportion. What draws less than a board has is taken to draw all of it. The device is
/// then called "h100-sxm@500W", which `parse_cluster` reads.
/// Throws Error at `where`: a board whose power is not known, a limit above it, or below a quarter of it, which no driver takes (200 of an
/// H100's 700 W, 100 of an A100's 400 W by nvidia-smi -q -d POWER).
Cluster held_to(Cluster cluster, Watts limit, const std::string& where);

/// A device's name without its limit.
std::string_view board_of(std::string_view device);

}  // namespace plimsoll

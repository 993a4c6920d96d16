// Of what was refused, the nearest variation that is played.
#pragma once

#include <string>

#include "plimsoll/error.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

/// The first single change of what was said whose ranks have programs, as on the command line ("--attention sdpa"); empty: none of those
/// tried. Values of the key that made the refusal come first, then what changes kernels, then what changes who holds what.
std::string nearest_played(const Error& refusal, const Model& model, const Cluster& cluster, const Strategy& said);

}  // namespace plimsoll::estimation

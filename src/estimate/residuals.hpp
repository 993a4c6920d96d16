// How far predictions of one kind of run have been from measured runs.
#pragma once

#include <string_view>

#include "plimsoll/estimate.hpp"

namespace plimsoll::estimation {

/// `expected` with the band in which nine in ten measured runs of this kind lay: of the framework's runs where hardware/residuals.json has
/// some, else of all frameworks' together; of predictions that no run was held against twice what played ones miss by. `quantity`:
/// "reserved_bytes" or "step_seconds".
Band band_of(std::string_view quantity, std::string_view framework, Basis basis, double expected);

/// How far the steps of two plans of one model on one cluster must be predicted apart, as a share of the shorter, for nine in ten such
/// pairs of measured runs to have come out in that order; 0 where hardware/residuals.json has no pairs.
double decisive_difference(std::string_view framework);

}  // namespace plimsoll::estimation

// Estimates for who asks for more than the report, or for less: whose programs are read by somebody else too, while they are played (a program
// is not kept once it was), and of a run that matters only where it fits.
#pragma once

#include <functional>
#include <optional>

#include "plimsoll/estimate.hpp"
#include "plimsoll/program.hpp"

namespace plimsoll::estimation {

/// Sees the program of a rank, as it is played; of several, in the order of their pipeline stages.
using ProgramReader = std::function<void(const StepProgram&)>;

/// What plimsoll::estimate says, and every rank's program to `reader`. `resolved` gets the strategy as it was settled.
Report estimate_and_read(const Model& model, const Cluster& cluster, const Strategy& strategy, const ProgramReader& reader,
                         Strategy* resolved = nullptr);

/// What plimsoll::estimate says; nothing where its program is played and the first of its ranks do not fit: the others are not lowered then.
std::optional<Report> estimate_if_fits(const Model& model, const Cluster& cluster, const Strategy& strategy);

}  // namespace plimsoll::estimation

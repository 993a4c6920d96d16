// Estimates for who asks for more than the report, or for less: whose programs are read by somebody else too, while they are played (a
// program is not kept once it was), and of a run that matters only where it fits and is quick enough.
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

/// A run that matters only where it fits and is quick enough.
struct Sought {
  std::optional<Report> report;     ///< what plimsoll::estimate says; nothing where the run does not matter
  std::optional<double> slow_step;  ///< expected seconds, where it takes too long: its first rank fits, of the others nothing is known
};

/// The programs of its ranks are played up to and with the first that does not fit: the others are not lowered then. `most_seconds`, where
/// it is said, of a run that is likely slower: the time of all ranks is played before the memory of any but the first, and where a step is
/// expected to take longer, that is all.
Sought estimate_sought(const Model& model, const Cluster& cluster, const Strategy& strategy, std::optional<double> most_seconds);

}  // namespace plimsoll::estimation

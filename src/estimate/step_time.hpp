// Closed-form time of one step: blocks by roofline, collectives over the topology, the pipeline by its schedule, then the tail.
#pragma once

#include <string>
#include <vector>

#include "estimate/stages.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/flops.hpp"
#include "plimsoll/play.hpp"

namespace plimsoll::estimation {

/// The parts of a step on the rank that ends last; they add up to it.
struct StepTime {
  Seconds compute, recompute;
  Seconds tensor_parallel, context_parallel, expert_parallel, pipeline_transfers, data_parallel;  ///< exposed communication
  Seconds bubble;
  Seconds copies;                     ///< exposed
  Seconds host;                       ///< nothing was issued yet
  Seconds optimizer, host_optimizer;

  Seconds total() const;
  std::vector<TimePart> parts() const;
};

StepTime step_time(const Model& model, const std::vector<Stage>& stages, const Cluster& cluster, const Strategy& resolved,
                   const std::array<GroupShape, kGroups>& groups, const flops::Lengths& lengths);

}  // namespace plimsoll::estimation

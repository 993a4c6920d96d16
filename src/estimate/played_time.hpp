// Time of a step, read off the programs of its ranks.
#pragma once

#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/play.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

/// The parts of a step on the rank that is busiest; they add up to it.
struct StepTime {
  Seconds compute, recompute;
  Seconds tensor_parallel, context_parallel, expert_parallel, pipeline_transfers, data_parallel;  ///< exposed communication
  Seconds bubble;
  Seconds copies;  ///< exposed
  Seconds host;    ///< nothing was issued yet
  Seconds optimizer, host_optimizer;

  Seconds total() const;
  std::vector<TimePart> parts() const;
};
StepTime parts_of(const Timeline& timeline);

/// The pricing of that run: its devices, groups, and the pace of its framework's host.
Pricing run_pricing(const Cluster& cluster, const Strategy& resolved, const std::array<GroupShape, kGroups>& groups);

/// Takes the programs of a run's ranks and plays them together.
class PlayedTime {
 public:
  explicit PlayedTime(Pricing pricing) : pricer_(std::move(pricing)) {}

  /// Takes the program of a stage when those of all before it were taken: what is read does not depend on which thread comes first.
  void add(int stage, const StepProgram& program);
  /// A program is missing: nobody waits any more, and nothing more is taken.
  void give_up();
  /// Pieces of work of a step of all ranks.
  std::int64_t pieces() const;
  /// The step of every rank, with all its events.
  std::vector<Timeline> timelines() const { return play_ranks(ranks_, pricer_.pricing(), true); }
  /// The step on the rank that waits least for the others.
  Timeline busiest() const;
  /// Its dearest kernels, and what would make the step faster.
  void describe(const Timeline& timeline, TimeReport& report) const;

 private:
  Pricer pricer_;
  std::vector<Score> ranks_;
  std::mutex taking_;
  std::condition_variable taken_;
  bool given_up_ = false;
};

}  // namespace plimsoll::estimation

// Peak memory of one rank: its step played through the allocator.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "estimate/played_time.hpp"
#include "estimate/read_programs.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/memory.hpp"
#include "program/lower.hpp"

namespace plimsoll::estimation {

/// The programs of a run's ranks, one after the other. Its arguments must outlive it. `reader`, where there
/// is one, sees each of them.
class RankPrograms {
 public:
  RankPrograms(const Model& model, const Strategy& resolved, const Cluster& cluster, ProgramReader reader = {})
      : model_(model), resolved_(resolved), cluster_(cluster), reader_(std::move(reader)) {}
  /// The program of a rank of that pipeline stage. Throws Error (refused) where there is no lowering yet.
  StepProgram of_stage(int stage);
  /// One that takes as long, whose memory is not told.
  StepProgram work_of_stage(int stage);
  /// Gives back a program that was read: the next one is written into its memory.
  void give_back(StepProgram program) { spare_ = std::move(program); }

 private:
  program::RankSource& source();

  const Model& model_;
  const Strategy& resolved_;
  const Cluster& cluster_;
  ProgramReader reader_;
  std::unique_ptr<program::RankSource> source_;
  StepProgram spare_;
};

/// Memory of a rank of pipeline stage `stage`, whose program stands for what `basis` says; its work and time go to `work` and `time`.
RankMemory rank_memory(RankPrograms& programs, const Model& model, int stage, const Cluster& cluster, const Strategy& resolved,
                       Basis basis, std::optional<StepWork>& work, PlayedTime& time);

/// What plays a rank's program on that device: what lies outside the allocator, a rollout engine too, is not the allocator's to take.
PlayMemoryOptions play_options(const StepProgram& program, const Model& model, const Cluster& cluster, const Strategy& resolved);

}  // namespace plimsoll::estimation

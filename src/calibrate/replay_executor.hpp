// A step program executed: kernels run in their order on the tensors that are alive.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "calibrate/operand_plan.hpp"
#include "calibrate/peer_collectives.hpp"
#include "calibrate/replay_memory.hpp"

namespace plimsoll::calibrate {

inline constexpr int kKinds = 8;  ///< of program kernels

/// What one playing of a part did.
struct Done {
  std::array<std::int64_t, kKinds> count{};
  std::array<Work, kKinds> work{};
  std::array<double, kKinds> seconds{};
  std::int64_t copies = 0, copied = 0, collectives = 0, communicated = 0;
  double copy_seconds = 0, collective_seconds = 0;
  double host_seconds = 0;  ///< of a processor, which runs one thing at a time: outside of all that was timed
};

/// Seconds of a step: those in which it ran, and, of a processor, those in which other work had one of its threads' processors.
struct StepTime {
  double ran = 0, taken = 0;
};

/// The other processes of a replay, each with a device of its own.
struct Peers {
  Peers(Backend& backend, Processes& all, const std::array<RankGroup, kGroups>& groups) : processes(all), collectives(backend, all, groups) {}
  int ranks() const { return processes.place().ranks; }

  Processes& processes;
  PeerCollectives collectives;
};

class Executor {
 public:
  /// Without `peers` collectives are left out.
  Executor(const PlayableRank& rank, Backend& backend, Peers* peers);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  ReplayMemory& memory() { return memory_; }
  const OperandPlan& plan() const { return plan_; }

  /// Plays a part once; with `timed` every kernel is timed by itself.
  Done play(const PlannedPart& part, bool timed);
  /// One steady step from its first kernel to the last of any stream, of the slowest process.
  StepTime time_step();

 private:
  static constexpr int kCopies = kKinds, kCollectives = kKinds + 1;
  struct Mark {
    int kind;  ///< of a kernel, kCopies or kCollectives
    std::size_t first, last;
  };

  void* random_memory();
  void execute(const Instruction& instruction, const PlannedOperands& operands, bool timed, Done& done);
  void wait_event(const Instruction& instruction);
  void run_kernel(const Instruction& instruction, const PlannedOperands& operands, bool timed, Done& done);
  void run_copy(const Instruction& instruction, const PlannedOperands& operands, bool timed, Done& done);
  void run_collective(const Instruction& instruction, const PlannedOperands& operands, bool timed, Done& done);
  /// A tensor's memory, or spare memory where it is not alive.
  void* memory_of(TensorId id, int spare) const;

  const StepProgram& program_;
  std::vector<StreamId> events_;  ///< of each event: where it was last recorded
  Backend& backend_;
  Peers* peers_;
  OperandPlan plan_;
  ReplayMemory memory_;
  std::int64_t spare_bytes_ = 0;
  void* spare_[2] = {nullptr, nullptr};
  void* host_ = nullptr;
  std::vector<Mark> marks_;
};

}  // namespace plimsoll::calibrate

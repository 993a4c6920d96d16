// Which tensors every kernel of a program works on, and how long ago they were last touched: what a replay executes, and how cold the
// caches are in which a calibration for a model times its kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/program_kernels.hpp"
#include "plimsoll/explain.hpp"

namespace plimsoll::calibrate {

/// Operands of one kernel, copy or collective. Results go to the youngest tensor that holds them, inputs come from the next; what no
/// tensor holds lies in spare memory.
struct PlannedOperands {
  static constexpr TensorId kSpare = UINT32_MAX;
  TensorId from = kSpare, to = kSpare;
  std::int64_t from_reuse = 0, to_reuse = 0;  ///< bytes that other work moved since they were last touched
};

/// A part of a program with the operands of each of its instructions; instructions that do no work have none.
struct PlannedPart {
  const std::vector<Instruction>* instructions;
  std::vector<PlannedOperands> operands;
};

/// The parts in the order in which they run; `step` as it is once every step ends as it began.
struct OperandPlan {
  PlannedPart init, first_step, second_step, step;
};

/// Plays the program's tensors through the allocator, on addresses alone. `needs`: of each of its kernels on that device.
OperandPlan plan_operands(const PlayableRank& rank, const std::vector<Operands>& needs, Target target);

}  // namespace plimsoll::calibrate

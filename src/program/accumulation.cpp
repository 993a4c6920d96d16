#include "program/accumulation.hpp"

#include "program/left_behind.hpp"

namespace plimsoll::program {

void Accumulation::repeat(StepProgram& program) const {
  if (left_out_ == 0) return;
  TensorId next = tape_.take_names(0);
  const auto repeat_in = [&](Tape::Part part, std::vector<Instruction>& instructions) {
    const Stretch& stretch = stretches_[static_cast<std::size_t>(part)];
    Repeated repeated{stretch.begin, stretch.end, 1 + left_out_};
    add_left_behind(instructions, repeated, stretch.until, next);
    return repeated;
  };
  repeat_in(Tape::Part::first_step, program.first_step);
  repeat_in(Tape::Part::second_step, program.second_step);
  program.repeated = repeat_in(Tape::Part::step, program.step);
}

}  // namespace plimsoll::program

/// Micro-batches over which gradients are accumulated: the first, the last and some of those between are recorded, further ones repeat them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "program/tape.hpp"

namespace plimsoll::program {

/// The micro-batches of a step, in every part of the program that runs them.
class Accumulation {
 public:
  /// `every`: none is left out.
  Accumulation(Tape& tape, std::int64_t micro_batches, bool every)
      : tape_(tape), recorded_(every ? micro_batches : std::min(micro_batches, kRecorded)), left_out_(micro_batches - recorded_) {}

  /// Records the micro-batches of one step; `micro_batch` is told whether its is the last.
  template <class Function>
  void run(Function&& micro_batch) {
    Stretch& stretch = stretches_[static_cast<std::size_t>(tape_.part())];
    constexpr std::int64_t kTurn = kRecorded / 2;
    for (std::int64_t i = 0; i < recorded_; ++i) {
      if (i == kTurn) stretch.begin = tape_.recorded();
      if (i == kTurn + 1) stretch.end = tape_.recorded();
      micro_batch(i + 1 == recorded_);
    }
    stretch.until = tape_.recorded();
  }

  /// This step's micro-batches were recorded as those of the first step, from the beginning on; `place` answers where an instruction of that
  /// one stands in this one.
  template <class Place>
  void run_again(Place&& place) {
    const Stretch& first = stretches_[static_cast<std::size_t>(Tape::Part::first_step)];
    stretches_[static_cast<std::size_t>(tape_.part())] = {place(first.begin), place(first.end), place(first.until)};
  }

  /// When all is recorded: the micro-batch in the middle stands for those that were left out, with what each leaves alive.
  void repeat(StepProgram& program) const;

 private:
  /// The allocator comes to the same state in every micro-batch behind the first few.
  static constexpr std::int64_t kRecorded = 8;

  struct Stretch {
    std::size_t begin = 0, end = 0;  ///< of the micro-batch that is repeated
    std::size_t until = 0;           ///< behind the last
  };

  Tape& tape_;
  std::int64_t recorded_, left_out_;
  std::array<Stretch, 4> stretches_{};  ///< by part
};

}  // namespace plimsoll::program

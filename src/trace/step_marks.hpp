// Which of a program's named ranges are its steps, where a profiler has no marks of its own for them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trace/recorded_events.hpp"

namespace plimsoll::trace {

/// Gathers ranges that are named as steps ("iteration 7", "train_step", "ProfilerStep#3"): those of one name, numbers aside. Where several
/// names could be the step's, the one with the longest ranges is: a step holds what is within it.
class StepMarks {
 public:
  void add(HostMark mark);
  /// The steps, in order, to `events.steps`.
  void write(RecordedEvents& events) &&;

 private:
  static constexpr std::size_t kMostMarks = 1'000'000;
  std::map<std::string, std::vector<HostMark>> named_;  ///< by name without its numbers
  std::size_t marks_ = 0;
};

}  // namespace plimsoll::trace

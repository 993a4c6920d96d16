// What a long command shows on a terminal: how far it is. In pipes it is silent.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace plimsoll::cli {

/// A line on stderr that is written over, where stderr is a terminal; and whether Ctrl-C asked to end. One lives at a time.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows bar, rate and time left, at most ten times a second. `remark` ends the line ("best 12.3 s"). False after Ctrl-C.
  bool show(const char* phase, std::uint64_t done, std::uint64_t of, const std::string& remark);
  static bool interrupted();

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  const char* phase_ = nullptr;
  Clock::time_point phase_start_, shown_;
};

}  // namespace plimsoll::cli

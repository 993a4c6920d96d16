// What a long command shows: how far it is. On a terminal a line that is written over; in a pipe or a log a line after a second, then now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace plimsoll::cli {

/// Lines on stderr, one that is written over where stderr is a terminal; and whether Ctrl-C asked to end. One lives at a time.
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
  /// In a log: nothing in the first second, then a line every ten.
  void log(Clock::time_point now, const char* phase, std::uint64_t done, std::uint64_t of, const std::string& remark);

  Clock::time_point start_, phase_start_, shown_;
  std::optional<Clock::time_point> logged_;
};

}  // namespace plimsoll::cli

// A Python that imports once what many runs of a program import, and forks for each (plimsoll_rehearse/warm.py).
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace plimsoll::cli {

/// While it lives, this process and those that it starts may have runs of one Python forked instead of started.
class WarmPython {
 public:
  /// `command`: the program's, an interpreter first; `environment` is added to ours. Where it cannot be started, every run starts anew.
  WarmPython(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment);
  ~WarmPython();
  WarmPython(const WarmPython&) = delete;
  WarmPython& operator=(const WarmPython&) = delete;

 private:
  std::string folder_;
  pid_t process_ = -1;
};

/// Whether a command is an interpreter of Python that runs a script or a module.
bool runs_python(const std::vector<std::string>& command);

/// A run that was forked for us.
class WarmRun {
 public:
  /// Asks for it, and waits until all is imported. Without a process where there is no such Python, or another than the command's.
  WarmRun(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment);
  ~WarmRun();
  WarmRun(const WarmRun&) = delete;
  WarmRun& operator=(const WarmRun&) = delete;

  pid_t process() const { return process_; }  ///< -1: it is not there
  /// Whether it and all that it started are over; then `status` is as wait4 tells it.
  bool over(int* status, long* peak_kilobytes);

 private:
  bool read_line(std::string* line, bool wait);

  int connection_ = -1;
  pid_t process_ = -1;
  std::string read_;  ///< what has come of a line
};

}  // namespace plimsoll::cli

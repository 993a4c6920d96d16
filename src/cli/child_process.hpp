// A program run to its end, to a time limit, or to ours.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll::cli {

struct ChildResult {
  bool started = false;  ///< else the program could not be run: `problem` says why
  std::string problem;
  int exit_code = 0;  ///< 128 + signal where one ended it
  bool timed_out = false;
  int interrupted_by = 0;  ///< the signal that asked us to end meanwhile (Ctrl-C): the program was ended too
  double seconds = 0;
  long peak_kilobytes = 0;  ///< resident memory of the largest process of it
};

/// When a program is over beyond the end of its first process; asked every 20 ms.
struct ChildWatch {
  std::function<bool(pid_t child)> is_done;  ///< it has done its work, and hangs: it is ended as if it had ended well
  std::function<bool()> others_run;          ///< processes that it left behind are still wanted
};

/// In a forked child: becomes `command`, a process group of its own that dies with us, with `environment` added (an empty value takes the variable
/// away) and its output going to our standard error. Returns only where that cannot be; errno says why.
void become(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment);

/// Runs `command` with `environment` added to ours (an empty value takes the variable away), its standard output and error both going to our
/// standard error. After `limit_seconds` the signal `ask_signal` goes to its process group, and five seconds later it is killed, as it is when
/// we are asked to end or die. Whatever it started, in its process group or not, is gone when this returns. Where a WarmPython lives, that forks it.
/// Throws nothing.
ChildResult run_child(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment,
                      double limit_seconds, int ask_signal, const ChildWatch& watch = {});

/// The standard output of a short command that reads nothing (at most 64 KiB); empty when it could not be run or failed.
std::string output_of(const std::vector<std::string>& command);

}  // namespace plimsoll::cli

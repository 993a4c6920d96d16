// A program run to its end, to a time limit, or to ours.
#pragma once

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

/// Runs `command` with `environment` added to ours, its standard output and error both going to our standard error. After `limit_seconds`
/// the signal `ask_signal` goes to its process group, and two seconds later it is killed, as it is when we are asked to end or die. Throws nothing.
ChildResult run_child(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment,
                      double limit_seconds, int ask_signal);

/// The standard output of a short command that reads nothing (at most 64 KiB); empty when it could not be run or failed.
std::string output_of(const std::vector<std::string>& command);

}  // namespace plimsoll::cli

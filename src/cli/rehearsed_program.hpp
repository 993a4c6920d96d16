// A program run on the stand-in device, and what its processes left behind.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/hardware.hpp"
#include "plimsoll/rehearse.hpp"
#include "warm_python.hpp"

namespace plimsoll::cli {

/// What to run, and as what.
struct Rehearse {
  Cluster cluster;
  LaunchLine line;
  bool world_is_known = false;  ///< the line or the user said it; else each process of the program tells
  std::int64_t world = 1;
  std::vector<std::int64_t> ranks;  ///< asked for; empty: the first, the middle and the last of whatever world comes to be
  std::int64_t steps = 4;
  double timeout = 600;
  bool until_peak = false, until_exit = false, synthetic_data = false;
  bool together = false;            ///< all ranks of the world run at once and exchange what hosts tell each other
  std::string mark;                 ///< a function whose calls are the steps
  std::vector<std::string> values;  ///< "loss=2.3": what unknown values are taken as
  std::string snapshot;             ///< where PyTorch itself writes its allocator's history with stacks
  std::string record;               ///< where records are kept; empty: nowhere
};

/// Why a program did not do what was asked of it; `what` is empty where it did.
struct Failure {
  std::string what, where, advice;
};

/// One rank of each kind that ran, and how the program ended.
struct Rehearsed {
  std::vector<Recording> recordings;  ///< of ranks that finished a step, or ran out of memory
  std::vector<Recording> others;      ///< of processes that did neither
  Failure failure;
  bool together = false;  ///< all ranks ran at once, since they asked for what only others know
};

/// Runs the program: once for each rank where the world is known, else once, whatever it starts. Throws Error where it cannot be run, is
/// interrupted, or leaves a damaged record.
Rehearsed rehearse(const Rehearse& wanted);

/// While it lives, rehearsals of this program on this kind of machines are forked from a Python that has imported what it imports.
std::unique_ptr<WarmPython> imported_ahead(const Rehearse& wanted);

/// "F", or "F.rank3" when there are several.
std::string per_rank(const std::string& path, std::int64_t rank, bool several);

/// Throws Error (bad_input) where there is no such program on PATH, or at its path.
void require_program(const std::string& program);

/// A script named as the program is run by python.
std::vector<std::string> with_python(std::vector<std::string> command);

}  // namespace plimsoll::cli

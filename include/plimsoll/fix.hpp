/// A change of a plan put into the files that it came from.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/formats.hpp"

namespace plimsoll {

/// A file as it was and as it is with the change.
struct FixedFile {
  std::string name, before, after;
};

struct Fix {
  std::string flags;              ///< the change as on our command line: "--recompute full"
  std::vector<std::string> said;  ///< the same in the program's words: "run.yaml: gradient_checkpointing: true"
  std::vector<FixedFile> files;   ///< those that change
  Report before, after;
};

/// Says a change (keys and values as `set_options` takes them) in the files of a run, as the program that reads them names it: values that stand
/// there are replaced, others are added, comments and all else stay. What comes out is read again: it says the change, all else that the files
/// said is as it was, and `after` is what it is estimated to be. Throws Error: a format that is not written, a value that stands where no single line can be changed, or files that would say
/// something else afterwards.
Fix fix_run(const std::vector<std::string>& files, const ForeignOptions& options, const std::vector<std::pair<std::string, std::string>>& change);

/// The lines that differ, as `diff` marks them, with three lines around each.
std::string difference_of(const FixedFile& file);

}  // namespace plimsoll

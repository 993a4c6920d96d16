/// A change of a plan put into the files that it came from.
#pragma once

#include <memory>
#include <optional>
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

/// Changes as the program of a run's files says them.
class ProgramWords {
 public:
  /// Of a run that read_foreign gave. Throws nothing: of files that nobody writes no change can be said.
  explicit ProgramWords(const ForeignRun& run);

  /// Whether export_run writes such files at all.
  bool is_written() const { return !writer_.empty(); }
  /// Whether the program can be told of the change (keys and values as `set_options` takes them).
  bool can_say(const std::vector<std::pair<std::string, std::string>>& change) const { return said(change).has_value(); }
  /// "gradient_checkpointing: true", "--recompute-granularity full", each what a key or an option becomes; nothing where it cannot be told.
  std::optional<std::vector<std::string>> said(const std::vector<std::pair<std::string, std::string>>& change) const;

 private:
  std::shared_ptr<const ForeignRun> run_;
  std::string writer_;  ///< as export_run names it; empty: nothing writes such files
};

/// The lines that differ, as `diff` marks them, with three lines around each.
std::string difference_of(const FixedFile& file);

}  // namespace plimsoll

/// Runs held against a baseline, for continuous integration (docs/gate.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll {

struct GateOptions {
  std::string on;        ///< cluster of cases that say none
  double memory = 0.02;  ///< share by which reserved bytes may grow
  double time = 0.03;    ///< share by which a sequence, and so a token, may take longer
  bool fail_on_tight = false;
};

/// One run: what is predicted, what the baseline had, and what is wrong with it.
struct GateCase {
  std::string name;                          ///< the file's
  std::string problem;                       ///< why it could not be read; then nothing else of it counts
  std::string verdict;                       ///< "fits", "tight", "does_not_fit"
  std::int64_t allocated = 0, reserved = 0;  ///< bytes of the rank with the least margin
  double device = 0;                         ///< bytes
  double step_seconds = 0, tokens_per_second = 0;
  bool has_baseline = false;
  std::string baseline_verdict;
  std::int64_t baseline_reserved = 0;
  double baseline_step_seconds = 0, baseline_tokens_per_second = 0;
  bool missing = false;               ///< the baseline has it and nobody asked for it now: told, no failure
  std::vector<std::string> failures;  ///< empty: it passes
};

/// Predicts the run that a file describes: another program's (read_foreign), or a strategy with "model" and "on". Never throws: what goes
/// wrong is the case's problem, and a failure. A run that does not fit is a failure, and a tight one where the options say so.
GateCase gate_case(const std::string& file, const GateOptions& options);

/// {"schema":"plimsoll/gate/1","cases":{NAME:{…}}}
std::string gate_baseline(const std::vector<GateCase>& cases);

/// Adds what the baseline had and every failure: more reserved bytes or fewer tokens a second than the options allow (of models without
/// tokens a longer step). A step that is longer because it trains more is none. A case that the baseline does not have is new and passes where
/// it fits; one that only the baseline has is added as missing. Throws Error: the file is unreadable or none.
void compare_with_baseline(std::vector<GateCase>& cases, const std::string& path, const GateOptions& options);

/// A line per case.
std::string gate_text(const std::vector<GateCase>& cases);
std::string gate_junit(const std::vector<GateCase>& cases);
/// GitHub-flavoured Markdown.
std::string gate_markdown(const std::vector<GateCase>& cases);
/// github-action-benchmark, tool customSmallerIsBetter: GiB and seconds.
std::string gate_benchmark(const std::vector<GateCase>& cases);

}  // namespace plimsoll

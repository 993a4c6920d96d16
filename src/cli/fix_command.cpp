// fix: a change of a plan, put into the files that people keep.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "plimsoll/error.hpp"
#include "plimsoll/explain.hpp"
#include "plimsoll/fix.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

std::string summary_of(const Report& report) {
  const RankMemory& memory = report.worst_rank().memory;
  return fmt::format("{}: {:.1f} of {:.1f} GiB per GPU, {} a step", report.verdict == Verdict::does_not_fit ? "does not fit" : std::string(name_of(report.verdict)),
                     memory.device.expected / 1073741824.0, memory.capacity.gib(), to_string(Seconds(report.time.step_seconds.expected)));
}

/// The changes with which a run that does not fit would and which its program can be told of, the one that costs least time first.
std::vector<Change> rescues_of(const ForeignRun& run) {
  const Report now = estimate(run.model, run.cluster, run.strategy);
  if (now.verdict != Verdict::does_not_fit)
    fail(now.verdict == Verdict::tight ? "it is tight: which change?" : "it fits: which change?", "fix", "--recompute full; 'plimsoll explain --from' lists what saves memory or time");
  const ProgramWords words(run);
  const auto can_be_said = [&](const Change& change) { return !words.is_written() || words.can_say(change.options); };  // else fix_run says why not
  std::vector<Change> rescues, alone = explain(run.model, run.cluster, run.strategy).changes;
  if (const auto change = fitting_change(run.model, run.cluster, run.strategy, can_be_said)) rescues.push_back(*change);
  std::stable_sort(alone.begin(), alone.end(), [](const Change& a, const Change& b) { return a.slowdown.value_or(1e9) < b.slowdown.value_or(1e9); });
  std::copy_if(alone.begin(), alone.end(), std::back_inserter(rescues), [&](const Change& change) { return change.verdict != Verdict::does_not_fit && can_be_said(change); });
  if (rescues.empty()) fail("nothing that was tried and that these files can say makes it fit", "fix", "fewer or smaller sequences, or more GPUs");
  return rescues;
}

/// The change that was said; without, the first of those that make it fit which these files can say.
Fix fixed(const Arguments& arguments, const std::vector<std::string>& files, const ForeignOptions& options) {
  const Options said = with_strategy_flags(Strategy{}, arguments).options;
  if (!said.empty()) return fix_run(files, options, said);
  std::string first;
  for (const Change& rescue : rescues_of(read_foreign(files, options))) {
    try {
      return fix_run(files, options, rescue.options);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::internal) throw;
      if (first.empty()) first = rescue.flag + ": " + error.message();
    }
  }
  fail("what would make it fit cannot be said in these files alone: " + first, "fix", "name a change that can");
}

int run_fix(const Arguments& arguments) {
  const std::vector<std::string> files = arguments.all("FILE");
  ForeignOptions options{arguments["--model"], arguments["--on"], {}, arguments.all("--release"), {}, arguments.all("--set"), arguments.integer_or("--launch", 0, 1, 1'000)};
  const Fix fix = fixed(arguments, files, options);
  std::string text = fix.flags + "\n";
  for (const std::string& line : fix.said) text += "  " + line + "\n";
  text += "\nbefore  " + summary_of(fix.before) + "\nafter   " + summary_of(fix.after) + "\n\n";
  for (const FixedFile& file : fix.files) text += difference_of(file) + "\n";
  if (arguments.has("--write")) {
    for (const FixedFile& file : fix.files) write_file(file.name, file.after);
    text += fmt::format("wrote {}\n", fix.files.size() == 1 ? fix.files.front().name : std::to_string(fix.files.size()) + " files");
  } else {
    text += "nothing is written without --write\n";
  }
  print(text);
  return fix.after.verdict == Verdict::does_not_fit ? kDoesNotFit : kFits;
}

}  // namespace

Command fix_command() {
  Command command{"fix",
                  "put a change into the files of a run, in its program's own words",
                  "  plimsoll fix axolotl.yaml --on 8xh100-sxm\n"
                  "  plimsoll fix train.sh --on 8xh100-sxm --recompute full --write",
                  {},
                  run_fix,
                  {}};
  command.options = {{Option::positional_list, "FILE", "the run's files, as --from reads them", true, {}},
                     {Option::value, "--on", "cluster, or the device where the files say how many", false, {}},
                     {Option::value, "--model", "the model, where the files do not say it", false, {}},
                     {Option::flag, "--write", "change the files; without, only the difference is shown", false, {}},
                     {Option::words, "--set", "NAME=VALUE …: what a script does not say", false, {}},
                     {Option::value, "--launch", "which of a script's launch lines, counted from 1", false, {}}};
  for (Option& flag : strategy_flags("--model")) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli

// rehearse: the user's own training command on a GPU that is not there.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "command.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/plimsoll.hpp"
#include "plimsoll/recorded_device.hpp"
#include "plimsoll/rehearse.hpp"
#include "rehearsed_program.hpp"
#include "rehearsed_variants.hpp"
#include "report_flags.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

constexpr std::int64_t kMostRanks = 10'000'000;
constexpr double kMostSeconds = 7 * 24 * 3600.0;

std::int64_t world_of(const Arguments& arguments, const LaunchLine& line, const Cluster& cluster) {
  const std::int64_t nodes = line.nodes > 0 ? line.nodes : std::max<std::int64_t>(1, cluster.gpus() / cluster.gpus_per_node);
  const std::int64_t said = line.every_device ? nodes * cluster.gpus_per_node : line.world();
  const std::int64_t world = arguments.integer_or("--world", said > 0 ? said : 1, 1, kMostRanks);
  if (said > 0 && world != said)
    fail(fmt::format("--world is {}, and the {} line starts {} processes", world, line.launcher, said), "--world", "leave one of them out");
  if (world > cluster.gpus())
    fail(fmt::format("a world of {} does not fit on the {} GPUs of {}", world, cluster.gpus(), cluster.name), "--world");
  return world;
}

/// "loss=2.3", "train.py:12=2.3".
std::vector<std::string> values_of(const Arguments& arguments) {
  std::vector<std::string> values = arguments.has("--value") ? arguments.all("--value") : std::vector<std::string>{};
  for (const std::string& each : values) {
    const std::size_t equals = each.rfind('=');
    char* end = nullptr;
    if (equals == std::string::npos || equals == 0 || equals + 1 == each.size() ||
        (std::strtod(each.c_str() + equals + 1, &end), *end != '\0'))
      fail("'" + each + "' is no value", "--value", "give NAME=NUMBER, a name in the line that reads it, or FILE:LINE=NUMBER");
  }
  return values;
}

/// The command and the machines: of the line, or of a script that --from names.
std::int64_t set_command(const Arguments& arguments, Rehearse& wanted) {
  if (!arguments.has("--from")) {
    wanted.cluster = parse_cluster(cluster_name(arguments, "rehearse"));
    wanted.line = parse_launch_line(arguments.has("COMMAND") ? arguments.all("COMMAND") : std::vector<std::string>{});
    return 0;
  }
  ForeignCommand found = read_foreign_command(arguments.all("--from"), {{}, arguments["--on"], arguments.all("COMMAND")});
  wanted.cluster = std::move(found.cluster);
  wanted.line = parse_launch_line(found.words);
  return found.ranks;
}

Rehearse wanted_of(const Arguments& arguments) {
  Rehearse wanted;
  const std::int64_t tasks = set_command(arguments, wanted);
  if (wanted.line.launcher.empty() && tasks > 0 && wanted.line.processes_per_node == 0) {
    wanted.line.nodes = 1;
    wanted.line.processes_per_node = tasks;
  }
  wanted.line.command = with_python(std::move(wanted.line.command));
  wanted.world = world_of(arguments, wanted.line, wanted.cluster);
  wanted.world_is_known = wanted.world > 1 || !wanted.line.launcher.empty();
  if (arguments.has("--rank"))
    wanted.ranks = {arguments.integer_or("--rank", 0, 0, (wanted.world_is_known ? wanted.world : wanted.cluster.gpus()) - 1)};
  wanted.steps = arguments.integer_or("--steps", arguments.has("--until-peak") ? 20 : 4, 1, 1'000'000);
  wanted.timeout = arguments.number_or("--timeout", 600, 0.1, kMostSeconds);
  wanted.until_peak = arguments.has("--until-peak");
  wanted.until_exit = arguments.has("--until-exit");
  wanted.together = arguments.has("--together");
  if (wanted.together && arguments.has("--rank")) fail("all ranks run together", "--rank", "leave it out");
  wanted.mark = arguments["--mark"];
  if (wanted.until_exit && !wanted.mark.empty())
    fail("the whole run is one step, or each call is", "--until-exit", "leave one of them out");
  wanted.values = values_of(arguments);
  wanted.synthetic_data = arguments.has("--synthetic-data");
  wanted.record = arguments["--record"];
  if (arguments.has("--stacks")) {
    if (!arguments.has("--memory-viz")) fail("stacks go into a snapshot", "--stacks", "add --memory-viz FILE");
    wanted.snapshot = arguments["--memory-viz"];
  }
  require_program(wanted.line.command.front());
  return wanted;
}

void write_views(const Arguments& arguments, const Rehearsal& rehearsal) {
  const Recording& recording = rehearsal.recordings[rehearsal.report.worst];
  if (arguments.has("--trace")) write_file(arguments["--trace"], to_timeline_trace(rehearsal, rehearsal.report.worst));
  if (!arguments.has("--memory-viz") || arguments.has("--stacks")) return;  // with stacks, PyTorch has written it
  PlayMemoryOptions options;
  options.steps = 2;
  write_file(arguments["--memory-viz"], to_memory_viz(record_memory(recording.program, options), recording.program.labels));
}

/// What is known of a program that finished no step: the process of it that did most.
std::string known_so_far(const Rehearsed& rehearsed) {
  const Recording* most = nullptr;
  for (const Recording& each : rehearsed.others)
    if (each.launches > 0 && (most == nullptr || each.launches > most->launches)) most = &each;
  if (most == nullptr) return {};
  return fmt::format("; until then it had launched {} kernels, allocated at most {} and reserved {}{}", most->launches,
                     to_string(most->peak_allocated()), to_string(most->peak_reserved()),
                     most->parameters > 0 ? fmt::format(", for a {} of {} parameters", most->model, most->parameters) : std::string());
}

int print_rehearsal(const Arguments& arguments, const Rehearsal& rehearsal, const std::string& before) {
  write_views(arguments, rehearsal);
  const std::size_t launches = arguments.has("--verbose") ? 1000 : 15;
  const auto document = [&] {
    Document made = document_of(rehearsal);
    made.command = command_line("rehearse", arguments, rehearse_command().options);
    return made;
  };
  print_to(arguments, report_in(format_of(arguments), arguments,
                                {[&](const TextStyle& style) { return before + to_text(rehearsal, launches, style); },
                                 [&] { return to_json(rehearsal.report); },
                                 document,
                                 {}}));
  return rehearsal.report.verdict == Verdict::does_not_fit ? kDoesNotFit : kFits;
}

/// Records that were kept, on a machine that the program did not run on.
int price_records(const Arguments& arguments) {
  if (arguments.has("COMMAND")) fail("nothing runs where records are priced", "--price", "leave the command out, or --price");
  const Cluster cluster = parse_cluster(cluster_name(arguments, "rehearse"));
  std::vector<Recording> recordings;
  std::vector<std::string> notes;
  for (const std::string& path : arguments.all("--price")) {
    const RecordedDevice device = recorded_device(path);
    for (std::string& note : may_differ(device, cluster, path))
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
    for (Recording& each : read_devices(path)) {
      if (each.out_of_memory || each.steps.empty())
        fail(each.out_of_memory ? "the recorded program ran out of memory" : "the recorded program finished no step", path, "rehearse it again");
      if (each.world > cluster.gpus())
        fail(fmt::format("a world of {} does not fit on the {} GPUs of {}", each.world, cluster.gpus(), cluster.name), path);
      recordings.push_back(std::move(each));
    }
    notes.push_back(fmt::format("priced from a record made on {}: the program did not run again", device.name));
  }
  Rehearsal rehearsal = rehearsal_of(std::move(recordings), cluster);
  notes.erase(std::unique(notes.begin(), notes.end()), notes.end());
  rehearsal.report.notes.insert(rehearsal.report.notes.begin(), notes.rbegin(), notes.rend());
  return print_rehearsal(arguments, rehearsal, {});
}

int run_rehearse(const Arguments& arguments) {
  if (arguments.has("--price")) return price_records(arguments);
  if (asks_for_variants(arguments)) return run_variants(arguments, rehearse_command().options, wanted_of);
  format_of(arguments);  // refused before anything runs
  const Rehearse wanted = wanted_of(arguments);
  Rehearsed rehearsed = rehearse(wanted);
  const Failure failure = rehearsed.failure;
  if (rehearsed.recordings.empty()) fail(failure.what + known_so_far(rehearsed), failure.where, failure.advice);
  Rehearsal rehearsal = rehearsal_of(std::move(rehearsed.recordings), wanted.cluster);
  const std::string unfinished = failure.where.empty() ? failure.what : failure.what + " at " + failure.where;
  if (!failure.what.empty()) rehearsal.report.notes.insert(rehearsal.report.notes.begin(), "not to the end: " + unfinished);
  const std::string before = failure.what.empty() ? "" : "not to the end: " + unfinished + "\nwhat was seen until then:\n\n";
  const int code = print_rehearsal(arguments, rehearsal, before);
  if (!failure.what.empty()) fail(failure.what, failure.where, failure.advice);
  return code;
}

}  // namespace

Command rehearse_command() {
  Command command{
      "rehearse",
      "your own training command on a GPU that is not there",
      "  plimsoll rehearse --on 8xmi300x --rank 0 --world 8 -- python train.py --batch-size 4\n"
      "  plimsoll rehearse --on 8xh100-sxm -- torchrun --nproc-per-node 8 train.py\n"
      "  plimsoll rehearse --on 1xh100-sxm --vary bs=1,2,4,8 --vary ac=true,false -- python train.py --batch {bs} --checkpointing {ac}\n"
      "  plimsoll rehearse --on 1xh100-sxm --largest bs -- python train.py --batch {bs}\n"
      "  plimsoll rehearse --on 8xh200-sxm --price run.record.rank0 run.record.rank7\n"
      "  plimsoll rehearse --on 1xh100-sxm --trace step.json --memory-viz peak.pickle -- python train.py",
      {{Option::value, "--on", "8xmi300x, 16x8xh100-sxm, a shipped cluster or a file; several with commas between", false, {}},
       {Option::value_list, "--vary", "KEY=VALUE,VALUE,…: rehearse with each for {KEY} in the command; may be given many times", false, {}},
       {Option::value, "--largest", "KEY: the largest number for {KEY} with which it fits", false, {}},
       {Option::words, "--price", "records that --record kept, priced on another machine: nothing runs", false, {}},
       {Option::words, "--from", "a script that starts the program (Slurm's too), and files that describe the machines", false, {}},
       {Option::value, "--rank", "the rank to stand for; else the first, the middle and the last", false, {}},
       {Option::value, "--world", "ranks in all; else what the launcher's line says, or 1", false, {}},
       {Option::value, "--steps", "optimizer steps to follow, 4 unless told", false, {}},
       {Option::flag, "--until-peak", "stop as soon as a step's peak recurs", false, {}},
       {Option::value, "--timeout", "seconds per rank, 600 unless told; then the stacks of all threads are printed", false, {}},
       {Option::flag,
        "--together",
        "run all ranks at once: they tell each other objects (chosen by itself where one waits for some)",
        false,
        {}},
       {Option::flag, "--until-exit", "take the whole run as one step: inference, evaluation, steps without an optimizer", false, {}},
       {Option::value, "--mark", "a function (or CLASS.METHOD) of the program each call of which is a step", false, {}},
       {Option::value_list, "--value", "NAME=NUMBER: what an unknown value is where NAME stands in the line that reads it", false, {}},
       {Option::flag, "--synthetic-data", "stand-ins for tokenizers and datasets that are not there", false, {}},
       {Option::flag,
        "--stacks",
        "let PyTorch write the --memory-viz snapshot itself, with the Python stack of every allocation",
        false,
        {}},
       {Option::value, "--trace", "write the step's timeline to this file (Perfetto)", false, {}},
       {Option::value, "--memory-viz", "write a snapshot for pytorch.org/memory_viz to this file", false, {}},
       {Option::value, "--record", "keep the record in this file (.rankN behind it for several ranks)", false, {}},
       {Option::rest,
        "COMMAND",
        "the program with its arguments, or any line that starts it: torchrun, accelerate launch, a shell script",
        true,
        {}}},
      run_rehearse,
      {}};
  for (Option& flag : report_flags()) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli

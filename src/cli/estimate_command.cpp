// estimate: memory, time and a verdict.
#include <fmt/ranges.h>

#include <functional>

#include "estimate_all.hpp"
#include "machines.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "plimsoll/rehearse.hpp"
#include "price_options.hpp"
#include "report_flags.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

/// What another calculator says about the model, computed as it computes it.
std::string other_view(const Arguments& arguments) {
  const std::string& view = arguments["--view"];
  if (view == "accelerate") return to_text(accelerate_view(load_base_model(arguments["MODEL"])));
  if (view != "deepspeed") fail("there is no view '" + view + "'", "--view", suggest(view, {"accelerate", "deepspeed"}));
  if (!arguments.has("--on")) fail("the view counts GPUs of a cluster", "--view deepspeed", "add --on 8xh100-sxm");
  const Cluster cluster = cluster_of(arguments, "estimate");
  return to_text(deepspeed_view(load_model(arguments["MODEL"]), cluster.gpus_per_node, cluster.nodes));
}

/// The lowered program beside one that was recorded.
std::string against(const Arguments& arguments, const Run& run) {
  if (arguments.has("--json")) fail("--against prints a table", "--json", "leave one of them out");
  const Strategy& strategy = run.strategy;
  const Recording recording = read_recording(arguments["--against"]);
  if (recording.program.step.empty())
    fail("the record has no whole step", arguments["--against"], "rehearse the program for longer: --steps, --timeout");
  const PlayableRank lowered = playable_rank(run.model, run.cluster, strategy, strategy.pp_rank.value_or(0));
  const MemoryTrace trace = play_memory(lowered.program, lowered.options);
  ProgramComparison comparison = compare_programs(lowered.program, recording);
  const auto bytes = [](Bytes of) { return static_cast<double>(of.count); };
  comparison.totals.insert(comparison.totals.begin(),
                           {{"peak allocated bytes", {bytes(trace.peak_allocated), bytes(recording.peak_allocated())}},
                            {"peak reserved bytes", {bytes(trace.peak_reserved), bytes(recording.peak_reserved())}}});
  return to_text(comparison, 25);
}

/// The command line again.
std::string said(const Arguments& arguments, const std::string& more = {}) {
  return command_line("estimate", arguments, estimate_command().options, more);
}

std::string in_its_files(const ProgramWords& words, const Change& change) {
  return fmt::format("in its files: {}\n", fmt::join(words.said(change.options).value_or(std::vector<std::string>{}), ", "));
}

/// The one command with which a run that does not fit would. Pipelines of many stages are not tried: each change plays all of them.
std::string what_would_fit(const Arguments& arguments, const Run& run, const Report& report) {
  constexpr std::size_t kMostStages = 4;
  if (report.ranks.size() > kMostStages) return "\nwhat would lower it: plimsoll explain, with the same arguments\n";
  const bool written = run.words && run.words->is_written();
  const auto can_be_said = [&](const Change& one) { return run.words->can_say(one.options); };
  const auto change = fitting_change(run.model, run.cluster, run.strategy, written ? can_be_said : std::function<bool(const Change&)>());
  if (!change) return "\nno change of the strategy that was tried makes it fit: take more or larger GPUs\n";
  return "\nwould fit, with " + to_string(change->device) + " per GPU\n  " + said(arguments, change->flag) + "\n" +
         (written ? in_its_files(*run.words, *change) : std::string());
}

int estimate_on_machines(const Arguments& arguments, const std::string& format) {
  for (const char* other : {"--against", "--all"})
    if (arguments.has(other)) fail(std::string(other) + " is of one machine", other, "name one machine behind --on");
  return offer_machines(arguments, format, [](const Arguments& there) {
    const Run run = run_of(there, "estimate");
    return MachineJob{run.cluster, estimate(run.model, run.cluster, run.strategy), {}};
  });
}

/// 1 for a verdict that the caller does not take.
int exit_code(const Arguments& arguments, Verdict verdict) {
  const std::string& worst = arguments["--fail-on"];
  if (!worst.empty() && worst != "tight" && worst != "does_not_fit")
    fail("there is no verdict '" + worst + "'", "--fail-on", suggest(worst, {"tight", "does_not_fit"}));
  return verdict == Verdict::does_not_fit || (verdict == Verdict::tight && worst == "tight") ? kDoesNotFit : kFits;
}

int run_estimate(const Arguments& arguments) {
  (void)exit_code(arguments, Verdict::fits);  // a wrong --fail-on is told before the work
  const std::string format = format_of(arguments);
  if (arguments.has("--view") && format != "text")
    fail("a view is printed as its own calculator prints it", "--view", "leave --format and --json out");
  if (arguments.has("--view")) return print_to(arguments, other_view(arguments)), kFits;
  if (names_machines(arguments)) return estimate_on_machines(arguments, format);
  if (arguments.has(kPrices)) fail("one machine has no price beside another's", kPrices, "name several machines behind --on, or any");
  if (arguments.has("--all")) return estimate_all(arguments, format);
  const Run run = run_of(arguments, "estimate");
  if (arguments.has("--against")) return print_to(arguments, against(arguments, run)), kFits;
  Strategy resolved;
  const Report report = estimate_or_nearest(run.model, run.cluster, run.strategy, &resolved);
  const auto settings = [&] { return settled_keys(resolved, run.said); };
  const ReportWriters writers{[&](const TextStyle& style) {
                                const bool helps = report.verdict == Verdict::does_not_fit && style.detail != TextStyle::Detail::brief;
                                return to_text(report, style) + (helps ? what_would_fit(arguments, run, report) : std::string());
                              },
                              [&] { return to_json(report, settings()); },
                              [&] {
                                Document document = document_of(report);
                                document.command = said(arguments);
                                return document;
                              },
                              [&] {
                                RunView view = view_of(run.model, run.cluster, run.strategy);
                                view.command = said(arguments);
                                view.settings = settings();
                                return document_of(view);
                              }};
  print_to(arguments, report_in(format, arguments, writers));
  return exit_code(arguments, report.verdict);
}

}  // namespace

Command estimate_command() {
  Command command{"estimate",
                  "memory, time and a verdict for one training step",
                  "  plimsoll estimate llama-3.1-8b --on 8xmi300x --fsdp full --seq 8192\n"
                  "  plimsoll estimate ./config.json --on 16x8xh100-sxm --tp 8 --pp 4 --json\n"
                  "  plimsoll estimate llama-3.1-8b --on 8xh200,8xmi300x,8xb200 --fsdp full\n"
                  "  plimsoll estimate --from fsdp.yaml --on h100-sxm -- accelerate launch train.py",
                  run_options(),
                  run_estimate,
                  {}};
  for (Option& flag : report_flags()) command.options.push_back(std::move(flag));
  command.options.push_back({Option::value, "--fail-on", "tight: exit 1 also where little is left", false, {}});
  command.options.push_back(prices_option());
  command.options.push_back({Option::value, "--view", "what accelerate's or deepspeed's calculator says", false, {}, true});
  command.options.push_back({Option::value, "--against", "a record of `plimsoll rehearse`, side by side", false, {}});
  command.options.front().required = false;  // --from may say it
  for (Option& option : code_options()) command.options.push_back(std::move(option));
  for (Option& option : foreign_options()) command.options.push_back(std::move(option));
  command.options.push_back({Option::flag, "--all", "every training that a script starts, a line each", false, kScripts, true});
  for (Option& flag : strategy_flags()) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli

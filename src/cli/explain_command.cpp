// explain: what takes the memory and the time of a rank, and what would lower either.
#include <optional>

#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "report_flags.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

constexpr std::int64_t kMostStages = 1'000'000;

/// Of the strategy's own keys one is called rank too; here --rank is the pipeline stage, whose ranks are alike.
const std::string kRank = "--rank";

std::optional<std::int64_t> stage_of(const Arguments& arguments, const Strategy& strategy) {
  if (arguments.has(kRank)) return arguments.integer_or(kRank, 0, 0, kMostStages);
  if (strategy.pp_rank) return *strategy.pp_rank;
  return {};
}

/// The step of every stage, or of the one that is asked for, in time.
std::string timelines(const Model& model, const Cluster& cluster, const Strategy& strategy, std::optional<std::int64_t> stage) {
  std::vector<RankTimeline> ranks = rank_timelines(model, cluster, strategy);
  if (stage) {
    if (*stage < 0 || *stage >= static_cast<std::int64_t>(ranks.size()))
      fail("there is no pipeline stage " + std::to_string(*stage), kRank, "stages are 0 to " + std::to_string(ranks.size() - 1));
    ranks = {std::move(ranks[static_cast<std::size_t>(*stage)])};
  }
  return to_step_trace(ranks, model.name + " on " + cluster.name);
}

/// The program itself, or its allocations for a viewer: of the stage asked for, else of the rank with the least margin.
std::string recording(const std::string& format, const Model& model, const Cluster& cluster, const Strategy& strategy,
                      std::optional<std::int64_t> stage) {
  if (format == "trace") return timelines(model, cluster, strategy, stage);
  const std::int64_t shown = stage ? *stage : estimate_or_nearest(model, cluster, strategy).worst_rank().stage;
  const PlayableRank rank = playable_rank(model, cluster, strategy, shown);
  if (format == "program") return to_program_text(rank.program);
  return to_memory_viz(record_memory(rank.program, rank.options), rank.program.labels);
}

bool is_recording(const std::string& format) { return format == "memory_viz" || format == "trace" || format == "program"; }

/// Changes as the files of the run would say them.
void say_in_words(const ProgramWords& words, Explanation& explanation) {
  for (std::vector<Change>* changes : {&explanation.changes, &explanation.faster})
    for (Change& change : *changes) change.said = words.said(change.options).value_or(std::vector<std::string>{});
}

/// The explanation in its format, and whether it fits.
std::string explained(const std::string& format, const Arguments& arguments, const Run& run, int& code) {
  const std::optional<std::int64_t> stage = stage_of(arguments, run.strategy);
  RunView view;
  if (format == "html")
    view = view_of(run.model, run.cluster, run.strategy, stage);
  else
    view.explanation = explain(run.model, run.cluster, run.strategy, stage);
  if (run.words) say_in_words(*run.words, view.explanation);
  view.command = command_line("explain", arguments, explain_command().options);
  if (view.explanation.report.verdict == Verdict::does_not_fit) code = kDoesNotFit;
  const std::size_t usual = arguments.has("--verbose") ? 0 : 8;
  const auto most = static_cast<std::size_t>(arguments.integer_or("--most", static_cast<std::int64_t>(usual), 0, 1'000'000'000));
  const auto document = [&] {
    Document made = document_of(view.explanation);
    made.command = view.command;
    return made;
  };
  return report_in(format, arguments, {[&](const TextStyle& style) { return to_text(view.explanation, most, style); },
                                       [&] { return to_json(view.explanation); }, document, [&] { return document_of(view); }});
}

int run_explain(const Arguments& arguments) {
  const std::string format = format_of(arguments, {"memory_viz", "trace", "program"});
  if (format == "memory_viz" && !arguments.has("-o")) fail("a snapshot is no text", "--format memory_viz", "add -o snapshot.pickle");
  const Run run = run_of(arguments, "explain", kRank);
  int code = kFits;
  print_to(arguments, is_recording(format) ? recording(format, run.model, run.cluster, run.strategy, stage_of(arguments, run.strategy))
                                           : explained(format, arguments, run, code));
  return code;
}

}  // namespace

Command explain_command() {
  Command command{"explain",
                  "what takes the memory at the peak and the time of the step, and what would lower either most",
                  "  plimsoll explain llama-3.1-8b --on 8xmi300x --fsdp full --micro-batch 2 --seq 8192\n"
                  "  plimsoll explain gpt2 --on 1xh100-sxm --micro-batch 8 --seq 1024 --format html -o gpt2.html\n"
                  "  plimsoll explain gpt2 --on 1xh100-sxm --micro-batch 8 --seq 1024 --format memory_viz -o gpt2.pickle\n"
                  "  plimsoll explain gpt2 --on 1xh100-sxm --micro-batch 8 --seq 1024 --format trace -o gpt2.json",
                  run_options(),
                  run_explain,
                  {}};
  command.options.push_back({Option::value, kRank, "pipeline stage to explain; else the one with the least margin", false, {}});
  const char* recordings = "memory_viz (a snapshot for pytorch.org/memory_viz), trace (the step in time: streams, phases, memory; Perfetto), "
                           "program (what is launched, line by line)";
  for (Option& flag : report_flags(recordings)) command.options.push_back(std::move(flag));
  command.options.push_back({Option::value, "--most", "groups shown per category, 8 unless told; 0: all (text only)", false, {}});
  command.options.front().required = false;  // --from may say it
  for (Option& option : code_options()) command.options.push_back(std::move(option));
  for (Option& option : foreign_options()) command.options.push_back(std::move(option));
  for (Option& flag : strategy_flags(kRank)) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli

// explain: what takes the memory of a rank, and what would lower it.
#include <optional>

#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
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

/// The allocations themselves, for a viewer: of the stage asked for, else of the rank with the least margin.
std::string recording(const std::string& format, const Model& model, const Cluster& cluster, const Strategy& strategy,
                      std::optional<std::int64_t> stage) {
  const std::int64_t shown = stage ? *stage : estimate(model, cluster, strategy).worst_rank().stage;
  const PlayableRank rank = playable_rank(model, cluster, strategy, shown);
  if (format == "program") return to_program_text(rank.program);
  if (format == "memory_viz") return to_memory_viz(record_memory(rank.program, rank.options), rank.program.labels);
  const std::string title = model.name + " on " + cluster.name + ", stage " + std::to_string(shown);
  return to_memory_trace(memory_timeline(rank.program, rank.options), rank.program.labels, title);
}

int run_explain(const Arguments& arguments) {
  if (arguments.has("--json") && arguments.has("--format") && arguments["--format"] != "json")
    fail("two ways to print at once", "--json --format " + arguments["--format"], "leave one of them out");
  const std::string format = arguments.has("--json") ? "json" : arguments.has("--format") ? arguments["--format"] : "text";
  const bool records = format == "memory_viz" || format == "trace" || format == "program";
  if (!records && format != "text" && format != "json")
    fail("there is no format '" + format + "'", "--format", suggest(format, {"text", "json", "memory_viz", "trace", "program"}));
  if (format == "memory_viz" && !arguments.has("-o")) fail("a snapshot is no text", "--format memory_viz", "add -o snapshot.pickle");
  const auto [model, cluster, strategy] = run_of(arguments, "explain", kRank);
  const auto most = static_cast<std::size_t>(arguments.integer_or("--most", 8, 0, 1'000'000'000));
  std::string text;
  int code = kFits;
  if (records) {
    text = recording(format, model, cluster, strategy, stage_of(arguments, strategy));
  } else {
    const Explanation explanation = explain(model, cluster, strategy, stage_of(arguments, strategy));
    text = format == "json" ? to_json(explanation) : to_text(explanation, most);
    if (explanation.report.verdict == Verdict::does_not_fit) code = kDoesNotFit;
  }
  print_to(arguments, text);
  return code;
}

}  // namespace

Command explain_command() {
  Command command{"explain",
                  "what takes the memory at the peak, and what would lower it most",
                  "  plimsoll explain llama-3.1-8b --on 8xmi300x --fsdp full --micro-batch 2 --seq 8192\n"
                  "  plimsoll explain gpt2 --on 1xh100-sxm --micro-batch 8 --seq 1024 --format memory_viz -o gpt2.pickle\n"
                  "  plimsoll explain gpt2 --on 1xh100-sxm --micro-batch 8 --seq 1024 --format trace -o gpt2.json",
                  run_options(),
                  run_explain,
                  {}};
  command.options.push_back({Option::value, kRank, "pipeline stage to explain; else the one with the least margin", false, {}});
  command.options.push_back({Option::value,
                             "--format",
                             "text, json, memory_viz (a snapshot for pytorch.org/memory_viz), trace (Perfetto, chrome://tracing), program (what is "
                             "launched, line by line)",
                             false,
                             {}});
  command.options.push_back({Option::flag, "--json", "the same as --format json", false, {}});
  command.options.push_back({Option::value, "-o", "write to this file", false, {}});
  command.options.push_back({Option::value, "--most", "groups shown per category, 8 unless told; 0: all (text only)", false, {}});
  command.options.front().required = false;  // --from may say it
  for (Option& option : foreign_options()) command.options.push_back(std::move(option));
  for (Option& flag : strategy_flags(kRank)) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli

#include <algorithm>

#include "command.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"

namespace plimsoll::cli {
namespace {

/// Every key of a strategy is a flag: "micro_batch" is --micro-batch.
std::string flag_of(const StrategyOption& option) {
  std::string flag = "--" + option.key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

/// The keys that most runs set; --help shows them first.
bool is_usual(const std::string& key) {
  constexpr const char* kUsual[] = {
      "framework", "gpus", "tp",   "pp",        "vp",        "cp",        "ep",       "dp",      "micro_batch",   "global_batch",
      "seq",       "zero", "fsdp", "precision", "optimizer", "recompute", "schedule", "offload", "data_parallel", "lora.r"};
  return std::find(std::begin(kUsual), std::end(kUsual), key) != std::end(kUsual);
}

Strategy strategy_of(const Arguments& arguments) {
  if (arguments.has("--zero") && arguments.has("--fsdp")) fail("--zero and --fsdp name two ways of sharding", {}, "give one of them");
  Strategy strategy = arguments.has("--strategy") ? load_strategy(arguments["--strategy"]) : Strategy{};
  for (const StrategyOption& option : strategy_options())
    if (const std::string flag = flag_of(option); arguments.has(flag)) set_option(strategy, option.key, arguments[flag]);
  return strategy;
}

/// What another calculator says about the model, computed as it computes it.
std::string other_view(const Arguments& arguments) {
  const std::string& view = arguments["--view"];
  if (view == "accelerate") return to_text(accelerate_view(load_base_model(arguments["MODEL"])));
  if (view != "deepspeed") fail("there is no view '" + view + "'", "--view", suggest(view, {"accelerate", "deepspeed"}));
  if (!arguments.has("--on")) fail("the view counts GPUs of a cluster", "--view deepspeed", "add --on 8xh100-sxm");
  const Cluster cluster = parse_cluster(arguments["--on"]);
  return to_text(deepspeed_view(load_model(arguments["MODEL"]), cluster.gpus_per_node, cluster.nodes));
}

int run_estimate(const Arguments& arguments) {
  if (arguments.has("--view")) return print(other_view(arguments)), kFits;
  if (!arguments.has("--on")) fail("--on is missing: the cluster to estimate for", "plimsoll estimate", "for example --on 8xmi300x");
  const Model model = load_model(arguments["MODEL"]);
  const Cluster cluster = parse_cluster(arguments["--on"]);
  const Report report = estimate(model, cluster, strategy_of(arguments));
  print(arguments.has("--json") ? to_json(report) : to_text(report));
  return report.verdict == Verdict::does_not_fit ? kDoesNotFit : kFits;
}

}  // namespace

Command estimate_command() {
  Command command{"estimate",
                  "memory, time and a verdict for one training step",
                  "  plimsoll estimate llama-3.1-8b --on 8xmi300x --fsdp full --micro-batch 2 --seq 8192\n"
                  "  plimsoll estimate ./config.json --on 16x8xh100-sxm --tp 8 --pp 4 --global-batch 512 --seq 4096 --json\n"
                  "  plimsoll estimate llama-3-8b --on 1xh100-sxm --view accelerate",
                  {},
                  run_estimate,
                  {}};
  command.options = {
      {Option::positional, "MODEL", "name of a shipped model, a config.json, a folder with one, or a graph file", true, {}},
      {Option::value, "--on", "cluster: 8xmi300x, 16x8xh100-sxm, a shipped cluster, or a file", false, {}},
      {Option::value, "--strategy", "JSON file of strategy keys; flags come on top", false, {}},
      {Option::flag, "--json", "print one plimsoll/estimate/1 object", false, {}},
      {Option::value, "--view", "accelerate or deepspeed: what that calculator says instead", false, {}},
  };
  for (const StrategyOption& option : strategy_options())
    command.options.push_back({Option::value, flag_of(option), option.help + (option.help.empty() ? "" : ": ") + option.values, false,
                               is_usual(option.key) ? "Strategy" : "Strategy, more keys (docs/rows.md)"});
  return command;
}

}  // namespace plimsoll::cli

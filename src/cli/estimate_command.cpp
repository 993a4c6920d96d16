#include <algorithm>

#include "command.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"

namespace plimsoll::cli {
namespace {

/// Short flags for the keys that everybody sets; every key of a strategy has a flag of its own name besides.
struct Alias {
  const char *flag, *key, *help;
};
constexpr Alias kAliases[] = {
    {"--seq", "seq_len", "tokens of a sequence"},
};

std::string flag_of(const StrategyOption& option) {
  std::string flag = "--" + option.key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

bool is_alias(const std::string& flag) {
  return std::any_of(std::begin(kAliases), std::end(kAliases), [&](const Alias& alias) { return flag == alias.flag; });
}

/// --zero 0..3 and --fsdp full|grad-op|hybrid|none: how the model states are shared, in the words of the papers.
void apply_sharding(const Arguments& arguments, Strategy& strategy) {
  if (arguments.has("--zero") && arguments.has("--fsdp")) fail("--zero and --fsdp say two different things", {}, "give one of them");
  if (arguments.has("--zero")) {
    const std::string& stage = arguments["--zero"];
    if (stage.size() != 1 || stage[0] < '0' || stage[0] > '3') fail("'" + stage + "' is no ZeRO stage", "--zero", "one of: 0, 1, 2, 3");
    set_option(strategy, "data_parallel", "zero" + stage);
  }
  if (!arguments.has("--fsdp")) return;
  const std::string& kind = arguments["--fsdp"];
  const std::vector<std::string> kinds{"full", "grad-op", "hybrid", "none"};
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end())
    fail("'" + kind + "' is no way of sharding", "--fsdp", suggest(kind, kinds));
  set_option(strategy, "data_parallel", kind == "none" ? "ddp" : kind == "hybrid" ? "hsdp" : "fsdp");
  if (kind == "grad-op") strategy.fsdp.sharding = FsdpOptions::Sharding::shard_grad_op;
}

Strategy strategy_of(const Arguments& arguments) {
  Strategy strategy = arguments.has("--strategy") ? load_strategy(arguments["--strategy"]) : Strategy{};
  apply_sharding(arguments, strategy);
  for (const Alias& alias : kAliases)
    if (arguments.has(alias.flag)) set_option(strategy, alias.key, arguments[alias.flag]);
  for (const StrategyOption& option : strategy_options())
    if (const std::string flag = flag_of(option); arguments.has(flag) && !is_alias(flag)) set_option(strategy, option.key, arguments[flag]);
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
      {Option::value, "--zero", "DeepSpeed ZeRO stage 0, 1, 2 or 3", false, "Strategy"},
      {Option::value, "--fsdp", "full, grad-op, hybrid or none", false, "Strategy"},
  };
  for (const Alias& alias : kAliases) command.options.push_back({Option::value, alias.flag, alias.help, false, "Strategy"});
  for (const StrategyOption& option : strategy_options())
    command.options.push_back(
        {Option::value, flag_of(option), option.help + (option.values.empty() ? "" : ": " + option.values), false, "Strategy"});
  return command;
}

}  // namespace plimsoll::cli

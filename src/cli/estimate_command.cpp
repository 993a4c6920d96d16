// estimate: memory, time and a verdict.
#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

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
  const std::string& on = cluster_name(arguments, "estimate");
  const Model model = load_model(arguments["MODEL"]);
  const Report report = estimate(model, parse_cluster(on), strategy_of(arguments));
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
                  run_options(),
                  run_estimate,
                  {}};
  command.options.push_back({Option::flag, "--json", "print one plimsoll/estimate/1 object", false, {}});
  command.options.push_back({Option::value, "--view", "accelerate or deepspeed: what that calculator says instead", false, {}});
  for (Option& flag : strategy_flags()) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli

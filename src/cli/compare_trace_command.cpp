// compare-trace: the predicted step beside one that a profiler recorded.
#include "command.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/explain.hpp"
#include "plimsoll/plimsoll.hpp"
#include "plimsoll/trace.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

/// A trace of another device tells nothing about a prediction for this one.
void check_device(const TracedDevice& traced, const Accelerator& device, const std::string& path) {
  if (traced.name.empty()) return;
  const bool vendor = traced.amd == device.is_amd(), units = traced.compute_units == 0 || traced.compute_units == device.compute_units;
  if (!vendor || !units)
    fail("the trace is of '" + traced.name + "' with " + std::to_string(traced.compute_units) + " compute units, the prediction is for " + device.title + " with " +
             std::to_string(device.compute_units),
         path, "name the trace's device with --on");
}

int run_compare_trace(const Arguments& arguments) {
  const Cluster cluster = cluster_of(arguments, "compare-trace");
  const Strategy strategy = strategy_of(arguments);
  const Model model = as_task_has_it(load_model(arguments["MODEL"]), strategy);
  const PlayableRank rank = playable_rank(model, cluster, strategy, arguments.integer_or("--stage", 0, 0, 1'000'000));
  const Trace trace = read_trace(arguments["TRACE"]);
  check_device(trace.device, cluster.accelerator, trace.path);
  const TraceComparison comparison = compare_trace(rank.program, pricing_of_run(model, cluster, strategy), trace);
  const auto most = static_cast<std::size_t>(arguments.integer_or("--most", 20, 1, 100'000));
  print_to(arguments, arguments.has("--json") ? to_json(comparison) : to_text(comparison, most));
  return kFits;
}

}  // namespace

Command compare_trace_command() {
  Command command{"compare-trace",
                  "the predicted step beside a profiler's trace, kernel by kernel",
                  "  plimsoll compare-trace gpt2 trace.json.gz --on 1xh100-sxm --micro-batch 8 --seq 1024 --precision amp-bf16\n",
                  {},
                  run_compare_trace,
                  {}};
  command.options = run_options();
  command.options.insert(command.options.begin() + 1, {Option::positional, "TRACE", "of torch.profiler (plain or gzipped), nsys (exported as sqlite) or rocprofv3 (kernel_trace.csv)", true, {}});
  command.options.push_back({Option::flag, "--json", "print one plimsoll/compare-trace/1 object", false, {}});
  command.options.push_back({Option::value, "-o", "write to this file", false, {}});
  command.options.push_back({Option::value, "--stage", "pipeline stage, 0 unless told", false, {}});
  command.options.push_back({Option::value, "--most", "rows of each table, 20 unless told", false, {}});
  for (Option& flag : strategy_flags()) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli

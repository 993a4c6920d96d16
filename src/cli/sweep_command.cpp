// sweep: every point of a few axes; compare: techniques one after the other.
#include <algorithm>

#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "progress.hpp"
#include "search_flags.hpp"

namespace plimsoll::cli {
namespace {

int run_sweep(const Arguments& arguments) {
  const std::string format = arguments.has("--json") ? "json" : arguments.has("--format") ? arguments["--format"] : "text";
  if (format != "text" && format != "json" && format != "csv") fail("there is no format '" + format + "'", "--format", suggest(format, {"text", "json", "csv"}));
  const SearchRequest request = search_request(arguments, "sweep");
  if (request.axes.empty() && request.gpus.size() < 2) fail("no key has several values", "sweep", "--micro-batch 1..16, --recompute none,full, --gpus 8..64");
  Sweep points;
  {
    Progress progress;
    points = sweep(request, [&](const SearchProgress& now) { return progress.show(now.phase, now.done, now.of, {}); });
  }
  print_to(arguments, format == "json" ? to_json(points) : format == "csv" ? to_csv(points) : to_text(points));
  const bool fits = std::any_of(points.points.begin(), points.points.end(), [](const SweepPoint& point) {
    return point.report && point.report->verdict != Verdict::does_not_fit;
  });
  return fits ? kFits : kDoesNotFit;
}

int run_compare(const Arguments& arguments) {
  const SearchRequest request = search_request(arguments, "compare");
  if (!request.axes.empty()) fail("'" + request.axes.front().key + "' has several values", "compare", "say one, and --then '--key value' for what comes next");
  if (!arguments.has("--then")) fail("nothing to compare with", "compare", "--then '--recompute full' --then '--tp 2'");
  const std::vector<Technique> techniques = waterfall(request, arguments.all("--then"));
  print_to(arguments, arguments.has("--json") ? to_json(techniques) : to_text(techniques));
  return techniques.back().report.verdict == Verdict::does_not_fit ? kDoesNotFit : kFits;
}

}  // namespace

Command sweep_command() {
  Command command{"sweep",
                  "estimate every point of a few axes",
                  "  plimsoll sweep llama-3.1-8b --on 8xh100-sxm --fsdp full --seq 8192 --micro-batch 1..8 --recompute none,full\n"
                  "  plimsoll sweep gpt2-xl --on 8x8xh100-sxm --gpus 8..64 --micro-batch 4 --format csv",
                  search_flags(),
                  run_sweep,
                  {}};
  command.options.push_back({Option::flag, "--json", "print one plimsoll/sweep/1 object", false, {}});
  command.options.push_back({Option::value, "--format", "text, json, csv", false, {}});
  command.options.push_back({Option::value, "-o", "write to this file", false, {}});
  return command;
}

Command compare_command() {
  Command command{"compare",
                  "what each technique adds: memory and time, one after the other",
                  "  plimsoll compare llama-3.1-8b --on 8xh100-sxm --fsdp full --micro-batch 1 --seq 8192 --then '--recompute full' --then '--micro-batch 4'",
                  search_flags(),
                  run_compare,
                  {}};
  command.options.push_back({Option::value_list, "--then", "flags to add to what stands before, in quotes; may be given many times", false, {}});
  command.options.push_back({Option::flag, "--json", "print one plimsoll/waterfall/1 object", false, {}});
  command.options.push_back({Option::value, "-o", "write to this file", false, {}});
  return command;
}

}  // namespace plimsoll::cli

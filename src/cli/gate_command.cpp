// gate: what continuous integration asks of a change: does every case still fit, and is none larger or slower than its baseline?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "plimsoll/error.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/gate.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

/// "+2%" or "2%": a share by which a case may grow.
double share_of(const Arguments& arguments, const std::string& name, double usual) {
  if (!arguments.has(name)) return usual;
  std::string text = arguments[name];
  if (!text.empty() && text.front() == '+') text.erase(0, 1);
  char* end = nullptr;
  const double percent = std::strtod(text.c_str(), &end);
  const bool good = end != text.c_str() && std::string(end) == "%" && std::isfinite(percent) && percent >= 0 && percent <= 1000;
  if (!good) fail("'" + arguments[name] + "' is no share", name, "+2%");
  return percent / 100;
}

/// --fail-on tight: whether a tight run fails, too.
bool fails_on_tight(const Arguments& arguments) {
  if (!arguments.has("--fail-on")) return false;
  if (arguments["--fail-on"] != "tight") fail("'" + arguments["--fail-on"] + "' is nothing to fail on", "--fail-on", "tight (what does not fit fails anyway)");
  return true;
}

int run_gate(const Arguments& arguments) {
  GateOptions options;
  options.fail_on_tight = fails_on_tight(arguments);
  options.on = arguments["--on"];
  options.memory = share_of(arguments, "--memory", options.memory);
  options.time = share_of(arguments, "--time", options.time);
  std::vector<GateCase> cases;
  for (const std::string& file : arguments.all("FILE")) cases.push_back(gate_case(file, options));
  if (arguments.has("--write-baseline")) write_file(arguments["--write-baseline"], gate_baseline(cases));
  if (arguments.has("--baseline")) compare_with_baseline(cases, arguments["--baseline"], options);
  print(gate_text(cases));
  const std::pair<const char*, std::string (*)(const std::vector<GateCase>&)> writers[] = {
      {"--junit", gate_junit}, {"--markdown", gate_markdown}, {"--benchmark", gate_benchmark}};
  for (const auto& [name, write] : writers)
    if (arguments.has(name)) write_file(arguments[name], write(cases));
  const bool passed = std::all_of(cases.begin(), cases.end(), [](const GateCase& one) { return one.failures.empty(); });
  return passed ? kFits : kDoesNotFit;
}

}  // namespace

Command gate_command() {
  Command command{"gate",
                  "hold cases against a baseline: exit 1 where one stops fitting, grows or slows",
                  "  plimsoll gate runs/*.yaml --on 8xh100-sxm --write-baseline baseline.json\n"
                  "  plimsoll gate runs/*.yaml --on 8xh100-sxm --baseline baseline.json --memory +2% --time +3% --markdown comment.md",
                  {},
                  run_gate,
                  {}};
  command.options = {
      {Option::positional_list, "FILE", "one run each: what --from reads, or a strategy file with \"model\" and \"on\"", true, {}},
      {Option::value, "--on", "cluster of the cases that say none", false, {}},
      {Option::value, "--baseline", "the file that --write-baseline wrote", false, {}},
      {Option::value, "--write-baseline", "write what is predicted now", false, {}},
      {Option::value, "--memory", "how much reserved memory may grow, +2% unless told", false, {}},
      {Option::value, "--time", "how much longer a token may take, +3% unless told", false, {}},
      {Option::value, "--fail-on", "tight: a run that may not fit fails, too", false, {}},
      {Option::value, "--junit", "write JUnit's XML", false, {}},
      {Option::value, "--markdown", "write a table for a comment", false, {}},
      {Option::value, "--benchmark", "write github-action-benchmark's JSON (customSmallerIsBetter)", false, {}}};
  return command;
}

}  // namespace plimsoll::cli

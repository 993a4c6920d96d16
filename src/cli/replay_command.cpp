// replay: execute the predicted step and hold the prediction against it.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "command.hpp"
#include "plimsoll/calibrate.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "report_flags.hpp"
#include "run_device.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

const std::string kDevice = "--device";

/// The strategy's keys as they were given: the file's come with the flags.
std::vector<std::pair<std::string, std::string>> settings_of(const Arguments& arguments) {
  if (arguments.has("--strategy")) fail("a row states every key", "--row", "give the strategy as flags instead of --strategy");
  std::vector<std::pair<std::string, std::string>> settings = stated_releases(arguments);
  for (const StrategyOption& option : strategy_options()) {
    std::string flag = "--" + option.key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (flag != kDevice && arguments.has(flag)) settings.emplace_back(option.key, arguments[flag]);
  }
  return settings;
}

/// The text of MODEL where it is a config.json; empty where it is the name of a shipped model.
std::string config_of(const std::string& model) {
  std::ifstream file(model);
  if (!file) return {};
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int run_replay(const Arguments& arguments) {
  const std::string format = format_of(arguments);
  const bool foreign = arguments.has("--from") || arguments.has("COMMAND");
  if (foreign && arguments.has("--row")) fail("a row states every key", "--row", "give the strategy as flags instead of --from");
  const Run run = run_of(arguments, "replay", kDevice);
  const PlayableRank rank = playable_rank(run.model, run.cluster, run.strategy, arguments.integer_or("--stage", 0, 0, 1'000'000));
  ReplayOptions options;
  if (arguments.has("--backend")) options.backend = arguments["--backend"];
  options.device = static_cast<int>(arguments.integer_or(kDevice, 0, 0, 1023));
  options.steps = static_cast<int>(arguments.integer_or("--steps", 5, 1, 10000));
  options.collectives = arguments.has("--collectives");
  options.stop = interrupted;
  watch_for_interruption();
  const Replay result = replay(rank, run.cluster, options);
  if (result.rank != 0) return kFits;  // every process has played the same step
  const auto document = [&] {
    Document made = document_of(result);
    made.command = command_line("replay", arguments, replay_command().options);
    return made;
  };
  print_to(arguments, report_in(format, arguments, {[&](const TextStyle& style) {
                                                      return style.detail == TextStyle::Detail::brief ? document_of(result).answer + "\n" : to_text(result);
                                                    },
                                                    [&] { return to_json(result); }, document, {}}));
  if (arguments.has("--row"))
    write_file(arguments["--row"], replay_row(result, arguments["MODEL"], config_of(arguments["MODEL"]), arguments["--on"], settings_of(arguments)));
  return kFits;
}

}  // namespace

Command replay_command() {
  Command command{
      "replay",
      "execute the predicted step on a device and compare",
      "  plimsoll replay gpt2 --on this-machine.json --backend cpu --micro-batch 1 --seq 128 --precision fp32 --attention eager\n"
      "  plimsoll replay llama-3.2-1b --on mi300x.json --backend hip --micro-batch 2 --seq 4096 --row replayed.json",
      run_options(),
      run_replay,
      {}};
  command.options.push_back({Option::value, "--backend", "auto (the default), hip, cuda or cpu", false, {}});
  command.options.push_back({Option::value, kDevice, "which device, from 0", false, {}});
  command.options.push_back({Option::value, "--stage", "pipeline stage, from 0", false, {}});
  command.options.push_back({Option::flag, "--collectives", "under mpirun: one process per device, collectives between them", false, {}});
  command.options.push_back({Option::value, "--steps", "steady steps to time, 5 unless told", false, {}});
  command.options.push_back({Option::value, "--row", "write the result as a measured row for plimsoll validate", false, {}});
  for (Option& flag : report_flags()) command.options.push_back(std::move(flag));
  command.options.front().required = false;  // --from may say it
  for (Option& option : foreign_options()) command.options.push_back(std::move(option));
  for (Option& flag : strategy_flags(kDevice)) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli

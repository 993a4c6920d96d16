#include "strategy_flags.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <utility>

#include "plimsoll/code.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/power_limit.hpp"
#include "plimsoll/release.hpp"

namespace plimsoll::cli {
std::string flag_of(const StrategyOption& option) {
  std::string flag = "--" + option.key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

namespace {

constexpr const char* kRelease = "--release";

/// "releases.*", which the command line spells --release.
bool is_release(const StrategyOption& option) { return option.key.find('*') != std::string::npos; }

/// The keys that most runs set; --help shows them first.
bool is_usual(const std::string& key) {
  constexpr const char* kUsual[] = {
      "framework", "gpus", "tp",   "pp",        "vp",        "cp",        "ep",       "dp",      "micro_batch",   "global_batch",
      "seq",       "zero", "fsdp", "precision", "optimizer", "recompute", "schedule", "offload", "data_parallel", "lora.r"};
  return std::find(std::begin(kUsual), std::end(kUsual), key) != std::end(kUsual);
}

}  // namespace

std::vector<Option> run_options() {
  return {{Option::positional, "MODEL", "a shipped model, config.json, folder or graph file", true, {}},
          {Option::value, "--on", "8xmi300x, 16x8xh100-sxm, a shipped cluster or a file", false, {}},
          {Option::value, "--power-limit", "what each board may draw, such as 500W (nvidia-smi -pl)", false, {}},
          {Option::value, "--strategy", "JSON file of strategy keys; flags come on top", false, {}}};
}

std::vector<Option> code_options() {
  return {{Option::value, "--code", "FILE:CLASS, or transformers', diffusers', timm's wheel", false, {}},
          {Option::value, "--args", "NAME=VALUE,…: what the class, its configuration, or timm's model is made with", false, kCode, true},
          {Option::value_list, "--input", "NAME:TYPE[B,S]: an argument of its forward", false, kCode, true}};
}

namespace {

/// MODEL by the code of a package's folder or wheel.
Model packaged_model(const Arguments& arguments, const std::vector<std::string>& packages) {
  if (!arguments.has("MODEL"))
    fail("whose model is planned is not told", "--code", "MODEL: a config.json, a shipped name, or a model type such as llama");
  PackageModel package = package_model(arguments["MODEL"], packages);
  if (arguments.has("--args")) package.arguments = parse_code_arguments(arguments["--args"]);
  package.inputs = arguments.all("--input");
  return model_of_package(package);
}

/// The model of --code, --args and --input.
Model coded_model(const Arguments& arguments) {
  const std::string& word = arguments["--code"];
  if (const std::vector<std::string> packages = packages_in(word); !packages.empty()) return packaged_model(arguments, packages);
  if (arguments.has("MODEL")) fail("MODEL and --code both say what is trained", "--code", "leave one of them out");
  const std::size_t colon = word.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == word.size()) fail("'" + word + "' is no FILE:CLASS", "--code", "such as model.py:GPT");
  CodeModel code;
  code.where = word.substr(0, colon);
  code.text = read_file(code.where);
  code.folder = std::filesystem::absolute(code.where).parent_path().string();
  code.class_name = word.substr(colon + 1);
  if (arguments.has("--args")) code.arguments = parse_code_arguments(arguments["--args"]);
  code.inputs = arguments.all("--input");
  return model_of_code(code);
}

Model model_of(const Arguments& arguments) { return arguments.has("--code") ? coded_model(arguments) : load_model(arguments["MODEL"]); }

}  // namespace

std::vector<Option> foreign_options() {
  return {{Option::words, "--from", "other programs' files (docs/formats); FORMAT:FILE forces", false, {}},
          {Option::words, "--set", "NAME=VALUE …: what a script does not say", false, kScripts, true},
          {Option::value, "--launch", "which of a script's launch lines, counted from 1", false, kScripts, true},
          {Option::flag, "--show-resolved", "every key of those files: what it became, and where from", false, {}},
          {Option::rest, "COMMAND", "a launch line behind --, as it would be typed", false, {}}};
}

namespace {

/// Of every key; each of a dozen commands has all but a few of them.
const std::vector<Option>& all_strategy_flags() {
  static const std::vector<Option> all = [] {
    std::vector<Option> flags;
    for (const StrategyOption& option : strategy_options()) {
      if (is_release(option)) continue;
      const bool usual = is_usual(option.key);
      flags.push_back({Option::value, flag_of(option), option.help + (option.help.empty() ? "" : ": ") + option.values, false,
                       usual ? "Strategy (--help-all: every key)" : "Strategy, more keys (docs/rows.md)", !usual});
    }
    return flags;
  }();
  return all;
}

}  // namespace

std::vector<Option> strategy_flags(const std::string& taken) {
  std::vector<Option> flags = {{Option::words, kRelease, "PACKAGE=VERSION …: what runs, where it is not the newest (docs/releases.md)", false,
                                "Strategy (--help-all: every key)"}};
  std::copy_if(all_strategy_flags().begin(), all_strategy_flags().end(), std::back_inserter(flags),
               [&](const Option& flag) { return flag.name != taken; });
  return flags;
}

std::vector<std::pair<std::string, std::string>> stated_releases(const Arguments& arguments) {
  std::vector<std::pair<std::string, std::string>> options;
  for (const std::string& said : arguments.all(kRelease)) {
    const auto [package, release] = release_option(said);
    options.emplace_back("releases." + package, release);
  }
  return options;
}

Strategy with_strategy_flags(Strategy strategy, const Arguments& arguments, const std::string& taken) {
  std::vector<std::pair<std::string, std::string>> options;
  for (const StrategyOption& option : strategy_options())
    if (const std::string flag = flag_of(option); flag != taken && !is_release(option) && arguments.has(flag))
      options.emplace_back(option.key, arguments[flag]);
  for (auto& release : stated_releases(arguments)) options.push_back(std::move(release));
  set_options(strategy, options);
  return strategy;
}

Strategy strategy_of(const Arguments& arguments, const std::string& taken) {
  return with_strategy_flags(arguments.has("--strategy") ? load_strategy(arguments["--strategy"]) : Strategy{}, arguments, taken);
}

bool is_foreign(const Arguments& arguments) { return arguments.has("--from") || arguments.has("COMMAND"); }

ForeignOptions foreign_options_of(const Arguments& arguments) {
  if (arguments.has("--strategy")) fail("--strategy and --from both give a strategy", "--strategy", "add --from strategy:FILE instead");
  std::vector<std::string> said;
  for (const StrategyOption& option : strategy_options())
    if (arguments.has(flag_of(option))) said.push_back(option.short_for.empty() ? option.key : option.short_for);
  std::vector<std::string> packages;
  if (arguments.has("--code") && (packages = packages_in(arguments["--code"])).empty())
    fail("beside --from the model's code is transformers'", "--code", "its folder or wheel; a class of one's own has a loop of its own");
  return {arguments["MODEL"],
          arguments["--on"],
          arguments.all("COMMAND"),
          arguments.all("--release"),
          {},
          arguments.all("--set"),
          arguments.integer_or("--launch", 0, 1, 1'000),
          std::move(said),
          std::move(packages)};
}

ForeignRun foreign_run(const Arguments& arguments) { return read_foreign(arguments.all("--from"), foreign_options_of(arguments)); }

Run run_of(const Arguments& arguments, const std::string& command, const std::string& taken) {
  if (!is_foreign(arguments)) {
    for (const char* flag : {"--args", "--input"})
      if (arguments.has(flag) && !arguments.has("--code")) fail("is about the class that --code names", flag, "add --code FILE:CLASS");
    if (!arguments.has("MODEL") && !arguments.has("--code"))
      fail("MODEL is missing: what is trained", command, "a shipped model's name, a config.json, --code FILE:CLASS, or --from FILE");
    Cluster cluster = cluster_of(arguments, command);
    Strategy strategy = strategy_of(arguments, taken);
    std::vector<SaidKey> said = said_keys(strategy, arguments["--strategy"]);
    return {as_task_has_it(model_of(arguments), strategy), std::move(cluster), std::move(strategy), std::move(said)};
  }
  return run_of(arguments, foreign_run(arguments), taken);
}

Run run_of(const Arguments& arguments, ForeignRun run, const std::string& taken) {
  run.strategy = with_strategy_flags(std::move(run.strategy), arguments, taken);
  if (arguments.has("--show-resolved")) print(show_resolved(run) + "\n");
  std::vector<SaidKey> said = said_keys(run), flags = said_keys(run.strategy, {});
  said.insert(said.end(), std::make_move_iterator(flags.begin()), std::make_move_iterator(flags.end()));
  ProgramWords words(run);
  return {as_task_has_it(std::move(run.model), run.strategy), with_power_limit(std::move(run.cluster), arguments), std::move(run.strategy), std::move(said),
          std::move(words)};
}

Cluster cluster_of(const Arguments& arguments, const std::string& command) {
  return with_power_limit(parse_cluster(cluster_name(arguments, command)), arguments);
}

Cluster with_power_limit(Cluster cluster, const Arguments& arguments) {
  if (!arguments.has("--power-limit")) return cluster;
  return held_to(std::move(cluster), parse_watts(arguments["--power-limit"]), "--power-limit");
}

const std::string& cluster_name(const Arguments& arguments, const std::string& command) {
  if (!arguments.has("--on")) fail("--on is missing: the cluster to estimate for", command, "for example --on 8xmi300x");
  return arguments["--on"];
}

}  // namespace plimsoll::cli

// The flags that name a run: model, cluster, and every key of a strategy.
#pragma once

#include "command.hpp"
#include "plimsoll/fix.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/settled_keys.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::cli {

/// MODEL, --on and --strategy.
std::vector<Option> run_options();
/// One per key: "micro_batch" is --micro-batch. Without the flag `taken`, to which the command gives another meaning.
std::vector<Option> strategy_flags(const std::string& taken = {});
/// The strategy's flags on top of what was said; `taken` as below.
Strategy with_strategy_flags(Strategy strategy, const Arguments& arguments, const std::string& taken = {});
/// The file of --strategy with the flags on top.
Strategy strategy_of(const Arguments& arguments, const std::string& taken = {});
/// The cluster of --on, with boards held to --power-limit.
Cluster cluster_of(const Arguments& arguments, const std::string& command);
/// The cluster with boards held to --power-limit, where it is given.
Cluster with_power_limit(Cluster cluster, const Arguments& arguments);
/// The releases of --release as keys and values: "releases.transformers", "4.51.3".
std::vector<std::pair<std::string, std::string>> stated_releases(const Arguments& arguments);
/// Throws Error where --on is missing.
const std::string& cluster_name(const Arguments& arguments, const std::string& command);

/// "--micro-batch" of micro_batch.
std::string flag_of(const StrategyOption& option);
/// Heading of the options for models of one's own.
inline constexpr const char* kCode = "A model of one's own (docs/code.md)";
/// --code, --args and --input.
std::vector<Option> code_options();
/// Heading of the options for launch scripts.
inline constexpr const char* kScripts = "Launch scripts (docs/formats/shell.md)";
/// --from FILE…, --set, --launch, --show-resolved and the launch line behind "--": what a command adds to run_options() to read other programs' files.
std::vector<Option> foreign_options();
/// Whether the line names other programs' files or a launch line.
bool is_foreign(const Arguments& arguments);
/// What stands beside those files.
ForeignOptions foreign_options_of(const Arguments& arguments);
/// What those say.
ForeignRun foreign_run(const Arguments& arguments);
/// What is estimated: MODEL, --on and the strategy, or what --from and a launch line say, with the flags on top.
struct Run {
  Model model;
  Cluster cluster;
  Strategy strategy;
  std::vector<SaidKey> said;  ///< its keys, as far as they were said, and where
  std::optional<ProgramWords> words = {};  ///< how other programs' files say a change; empty: it came from none
};
/// Throws Error where MODEL or --on is missing and no file stands in for it. `taken` as in strategy_of. Prints what --show-resolved asks
/// for.
Run run_of(const Arguments& arguments, const std::string& command, const std::string& taken = {});
/// What files say, with the flags on top.
Run run_of(const Arguments& arguments, ForeignRun run, const std::string& taken = {});

}  // namespace plimsoll::cli

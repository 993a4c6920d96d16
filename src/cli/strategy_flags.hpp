// The flags that name a run: model, cluster, and every key of a strategy.
#pragma once

#include "command.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::cli {

/// MODEL, --on and --strategy.
std::vector<Option> run_options();
/// One per key: "micro_batch" is --micro-batch. Without the flag `taken`, to which the command gives another meaning.
std::vector<Option> strategy_flags(const std::string& taken = {});
/// The file of --strategy with the flags on top.
Strategy strategy_of(const Arguments& arguments, const std::string& taken = {});
/// Throws Error where --on is missing.
const std::string& cluster_name(const Arguments& arguments, const std::string& command);

}  // namespace plimsoll::cli

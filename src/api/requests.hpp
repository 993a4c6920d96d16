// Members of a request of the C function (docs/c-api.md). Everything here throws Error, naming the member, where it is not what it must be.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "plimsoll/formats.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/settled_keys.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::api {

using Json = nlohmann::json;

const Json& member(const Json& request, const char* key, const char* expected);
std::string text_of(const Json& request, const char* key, const char* expected);

/// The members of an object of options, as texts: of a number or a truth value what JSON writes.
std::vector<std::pair<std::string, std::string>> options_of(const Json& options);

/// "model": a name, a path, a config object, or {"files": …}: the one that files of other programs describe.
Model model_of(const Json& request);

/// "on": a cluster.
Cluster cluster_of(const Json& request);

/// "strategy": an object as a strategy file has it; or "options": keys of docs/rows.md with values as the command line takes them. Neither:
/// the defaults.
Strategy strategy_of(const Json& request);

/// "from" (names of files), "files" (files handed over, each "name" and "text"; all of them are read where "from" is not there), "launch"
/// (words of a launch line), "model", "on" and "releases" ("transformers=4.46.3"). A strategy beside them is refused.
ForeignRun foreign_run_of(const Json& request);

/// A run, as the request itself or files of other programs say it.
struct AskedRun {
  std::string name;  ///< of the model
  Model model;
  Cluster cluster;
  Strategy strategy;
  std::vector<SaidKey> said;  ///< its keys, as far as they were said, and where
};
AskedRun asked_run(const Json& request);

/// A model that `model_of` takes for the one of a run that these files describe.
Json model_request(const Json& request, const ForeignRun& run);

}  // namespace plimsoll::api

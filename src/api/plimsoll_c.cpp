#include <cstdlib>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api/requests.hpp"
#include "plimsoll/document.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/plimsoll.h"
#include "plimsoll/plimsoll.hpp"
#include "units/json_reader.hpp"

namespace plimsoll {
namespace {

using api::Json;
using namespace api;

/// What files of other programs say, as a request that asks the same without them.
std::string answer_read(const Json& request) {
  const ForeignRun run = foreign_run_of(request);
  nlohmann::ordered_json options = nlohmann::ordered_json::object();
  for (const auto& [key, value] : strategy_keys(run)) options[key] = value;
  Json keys = Json::array();
  constexpr const char* kKinds[] = {"said", "derived", "default"};
  for (const ForeignKey& key : run.keys)
    keys.push_back({{"key", key.key},
                    {"value", key.value},
                    {"foreign", key.foreign},
                    {"where", key.where},
                    {"kind", kKinds[static_cast<int>(key.kind)]}});
  const nlohmann::ordered_json answer = {
      {"schema", "plimsoll/run/1"},
      {"formats", run.formats},
      {"model", model_request(request, run)},
      {"cluster", {{"device", run.cluster.accelerator.name}, {"nodes", run.cluster.nodes}, {"gpus_per_node", run.cluster.gpus_per_node}}},
      {"options", std::move(options)},
      {"keys", std::move(keys)},
      {"assumed", resolve(run.strategy, run.model, run.cluster).assumed},
      {"unread", run.unread}};
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Without `to` the names of the formats; with it the plan as that program's files.
std::string answer_export(const Json& request) {
  if (!request.contains("to")) return Json{{"schema", "plimsoll/formats/1"}, {"formats", export_formats()}}.dump() + "\n";
  const AskedRun asked = asked_run(request);
  const ExportedRun exported =
      export_run({asked.name, asked.model, asked.cluster, asked.strategy, true}, text_of(request, "to", "the name of a format"));
  Json files = Json::array();
  for (const NamedText& file : exported.files) files.push_back({{"name", file.name}, {"text", file.text}});
  return Json{{"schema", "plimsoll/export/1"}, {"files", std::move(files)}, {"command", exported.command}, {"no_equal", exported.no_equal}}
             .dump() +
         "\n";
}

std::string answer_estimate(const Json& request) {
  const AskedRun asked = asked_run(request);
  Strategy resolved;
  const Report report = estimate_or_nearest(asked.model, asked.cluster, asked.strategy, &resolved);
  return to_json(report, settled_keys(resolved, asked.said));
}

std::optional<std::int64_t> stage_of(const Json& request) {
  const auto stage = request.find("stage");
  if (stage == request.end() || stage->is_null()) return {};
  if (!stage->is_number_integer() || *stage < 0 || *stage > INT32_MAX) fail("must be a pipeline stage, from 0", "request#/stage");
  return stage->get<std::int64_t>();
}

std::string answer_explain(const Json& request) {
  const AskedRun asked = asked_run(request);
  return to_json(explain(asked.model, asked.cluster, asked.strategy, stage_of(request)));
}

/// What would make a run fit that does not: options to add; "change" is null where nothing that was tried does.
std::string answer_rescue(const Json& request) {
  const AskedRun asked = asked_run(request);
  const auto change = fitting_change(asked.model, asked.cluster, asked.strategy);
  Json answer = {{"schema", "plimsoll/rescue/1"}, {"change", nullptr}};
  if (change) answer["change"] = {{"flag", change->flag}, {"device_bytes", change->device.count}, {"verdict", name_of(change->verdict)}};
  return answer.dump() + "\n";
}

std::string answer_view(const Json& request) {
  const AskedRun asked = asked_run(request);
  return to_json(view_of(asked.model, asked.cluster, asked.strategy, stage_of(request)));
}

/// A report as a file: {"schema":"plimsoll/report/1","format":…,"text":…}.
std::string answer_report(const Json& request) {
  const std::string format = text_of(request, "format", "html, markdown or csv");
  if (format != "html" && format != "markdown" && format != "csv")
    fail("there is no format '" + format + "'", "request#/format", suggest(format, {"html", "markdown", "csv"}));
  const AskedRun asked = asked_run(request);
  const Document document = format == "html" ? document_of(view_of(asked.model, asked.cluster, asked.strategy, stage_of(request)))
                                             : document_of(estimate_or_nearest(asked.model, asked.cluster, asked.strategy));
  const std::string text = format == "html" ? to_html(document) : format == "csv" ? to_csv(document) : to_markdown(document);
  return Json{{"schema", "plimsoll/report/1"}, {"format", format}, {"text", text}}.dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

std::string answer_engine(const Json& request) {
  const Model model = model_of(request);
  const Cluster cluster = cluster_of(request);
  const auto options = request.find("options");
  const EngineSetting setting =
      engine_setting(options == request.end() ? std::vector<std::pair<std::string, std::string>>{} : options_of(*options));
  return to_json(plan_engine(model, cluster, setting), model.name, cluster.name);
}

std::string answer_hardware(const Json& request) {
  return hardware_json(request.contains("name") ? text_of(request, "name", "a device's or a cluster's name") : std::string());
}

/// Every key of a strategy with its values and what it means.
std::string answer_options(const Json&) {
  nlohmann::ordered_json options = nlohmann::ordered_json::array();
  for (const StrategyOption& option : strategy_options())
    options.push_back({{"key", option.key}, {"values", option.values}, {"help", option.help}});
  return nlohmann::ordered_json{{"schema", "plimsoll/options/1"}, {"options", std::move(options)}}.dump() + "\n";
}

/// Whether the strategy would be taken with one key changed: null, or why not.
Json refusal_of(const Json& request, const Model& model, const Cluster& cluster, const std::string& key, const Json& value) {
  const char* said = request.contains("options") ? "options" : "strategy";
  Json changed = {{said, request.value(said, Json::object())}};
  changed[said][key] = value;
  try {
    const Strategy strategy = strategy_of(changed);
    (void)resolve(strategy, beside_teacher(model, strategy), cluster);
    return nullptr;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    return error.what();
  }
}

/// What the offered keys are where nothing is said of them, as far as the strategy has them at all; of one that cannot be taken nothing.
Json taken_of(const Json& request, const Model& model, const Cluster& cluster, const Json& keys) {
  Json taken = Json::object();
  try {
    const Strategy resolved = resolve(strategy_of(request), model, cluster);
    for (const auto& [key, unused] : keys.items())
      if (const auto settled = settled_value(resolved, key)) taken[key] = *settled;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
  }
  return taken;
}

/// For menus: of every value of every key that the caller offers, why it cannot be taken with all else as it is; null where it can.
std::string answer_choices(const Json& request) {
  constexpr std::size_t kMostValues = 500;
  const Json& keys = member(request, "keys", "an object of keys, each with a list of values");
  if (!keys.is_object()) fail("must be an object of keys, each with a list of values", "request#/keys");
  const Model model = as_task_has_it(model_of(request), strategy_of(request));
  const Cluster cluster = cluster_of(request);
  Json answer = Json::object();
  std::size_t values = 0;
  for (const auto& [key, list] : keys.items()) {
    if (!list.is_array()) fail("must be a list of values", "request#/keys/" + key);
    if ((values += list.size()) > kMostValues) fail("more than 500 values at once", "request#/keys");
    answer[key] = Json::array();
    for (const Json& value : list) answer[key].push_back(refusal_of(request, model, cluster, key, value));
  }
  return Json{{"schema", "plimsoll/choices/1"}, {"refused", std::move(answer)}, {"taken", taken_of(request, model, cluster, keys)}}.dump(
             -1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

std::string answer_models(const Json& request) {
  return request.contains("model") ? model_sheet_json(model_of(request)) : model_list_json();
}

std::string answer_graph(const Json& request) { return LayerGraph(model_of(request)).to_json(); }

std::string answer_version(const Json&) { return Json{{"schema", "plimsoll/version/1"}, {"version", version()}}.dump() + "\n"; }

struct Entry {
  const char* command;
  std::string (*answer)(const Json&);
};
constexpr Entry kEntries[] = {{"estimate", answer_estimate}, {"explain", answer_explain}, {"view", answer_view},
                              {"engine", answer_engine},     {"rescue", answer_rescue},   {"report", answer_report},
                              {"read", answer_read},         {"export", answer_export},   {"models", answer_models},
                              {"hardware", answer_hardware}, {"options", answer_options}, {"choices", answer_choices},
                              {"graph", answer_graph},       {"version", answer_version}};

std::string answer(const char* request_json) {
  if (!request_json) fail("the request is a null pointer", "request");
  JsonDocument::parse(request_json, "request");  // refuses what is too large, too deep or no JSON, with line and column
  const Json request = Json::parse(request_json);
  if (!request.is_object()) fail("must be a JSON object", "request");
  const std::string command = text_of(request, "command", "the name of a command");
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) {
    if (command == entry.command) return entry.answer(request);
    names.emplace_back(entry.command);
  }
  fail("there is no command '" + command + "'", "request#/command", suggest(command, names));
}

std::string answer_or_error(const char* request_json) {
  try {
    return answer(request_json);
  } catch (const Error& error) {
    return to_json(error);
  } catch (const std::bad_alloc&) {
    throw;  // no answer to this request, as it is documented
  } catch (const std::exception& error) {
    return to_json(Error(ErrorCode::internal, error.what()));
  }
}

}  // namespace
}  // namespace plimsoll

extern "C" char* plimsoll_call(const char* request_json) {
  try {
    const std::string text = plimsoll::answer_or_error(request_json);
    char* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy) std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
  } catch (...) {  // memory is exhausted: nothing may leave a C function
    return nullptr;
  }
}

extern "C" void plimsoll_free(char* answer) { std::free(answer); }

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "plimsoll/document.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/plimsoll.h"
#include "plimsoll/plimsoll.hpp"
#include "units/json_reader.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

const Json& member(const Json& request, const char* key, const char* expected) {
  const auto found = request.find(key);
  if (found == request.end()) fail(std::string("missing: ") + expected, std::string("request#/") + key);
  return *found;
}

std::string text_of(const Json& request, const char* key, const char* expected) {
  const Json& value = member(request, key, expected);
  if (!value.is_string()) fail(std::string("must be ") + expected, std::string("request#/") + key);
  return value.get<std::string>();
}

Model model_of(const Json& request) {
  const Json& model = member(request, "model", "a model's name, a path, or a config object");
  if (model.is_object()) return parse_model(model.dump(), "request#/model", "model");
  return load_model(text_of(request, "model", "a model's name, a path, or a config object"));
}

Strategy strategy_of(const Json& request) {
  const auto strategy = request.find("strategy");
  if (strategy == request.end()) return {};
  if (!strategy->is_object()) fail("must be an object of strategy keys", "request#/strategy");
  return parse_strategy(strategy->dump(), "request#/strategy");
}

Cluster cluster_of(const Json& request) { return parse_cluster(text_of(request, "on", "a cluster such as \"8xmi300x\"")); }

#ifndef __EMSCRIPTEN__
std::vector<std::string> texts_of(const Json& request, const char* key) {
  const auto list = request.find(key);
  std::vector<std::string> texts;
  if (list == request.end()) return texts;
  if (!list->is_array()) fail("must be a list of texts", std::string("request#/") + key);
  for (const Json& one : *list) {
    if (!one.is_string()) fail("must be a list of texts", std::string("request#/") + key);
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

/// Files of other programs, or a launch line, in the place of model and strategy.
ForeignRun foreign_run(const Json& request) {
  ForeignOptions options;
  if (request.contains("model")) options.model = text_of(request, "model", "a model's name or a path");
  if (request.contains("on")) options.on = text_of(request, "on", "a cluster or a device");
  options.launch_line = texts_of(request, "launch");
  options.releases = texts_of(request, "releases");
  if (request.contains("strategy")) fail("files and a strategy both say how to train", "request#/strategy", "leave it out");
  return read_foreign(texts_of(request, "from"), options);
}

bool is_foreign(const Json& request) { return request.contains("from") || request.contains("launch"); }

/// What the files say, key by key.
std::string answer_resolved(const Json& request) {
  const ForeignRun run = foreign_run(request);
  Json keys = Json::array();
  static const char* const kKinds[] = {"said", "derived", "default"};
  for (const ForeignKey& key : run.keys)
    keys.push_back({{"key", key.key},
                    {"value", key.value},
                    {"foreign", key.foreign},
                    {"where", key.where},
                    {"kind", kKinds[static_cast<int>(key.kind)]}});
  const Strategy resolved = resolve(run.strategy, run.model, run.cluster);
  return Json{{"schema", "plimsoll/resolved/1"},
              {"formats", run.formats},
              {"keys", std::move(keys)},
              {"assumed", resolved.assumed},
              {"unread", run.unread}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

#endif

/// A run, as the request itself or files of other programs say it.
struct Asked {
  std::string name;  ///< of the model
  Model model;
  Cluster cluster;
  Strategy strategy;
};

Asked asked_run(const Json& request) {
#ifndef __EMSCRIPTEN__  // a page has no such files
  if (is_foreign(request)) {
    ForeignRun run = foreign_run(request);
    const std::string name = run.model_name.empty() ? run.model.name : run.model_name;
    return {name, std::move(run.model), std::move(run.cluster), std::move(run.strategy)};
  }
#endif
  const Json& said = member(request, "model", "a model's name, a path, or a config object");
  Model model = model_of(request);
  const std::string name = said.is_string() ? said.get<std::string>() : model.name;
  return {name, std::move(model), cluster_of(request), strategy_of(request)};
}

#ifndef __EMSCRIPTEN__
/// Without `to` the names of the formats; with it the plan as that program's files.
std::string answer_export(const Json& request) {
  if (!request.contains("to")) return Json{{"schema", "plimsoll/formats/1"}, {"formats", export_formats()}}.dump() + "\n";
  const Asked asked = asked_run(request);
  const ExportedRun exported =
      export_run({asked.name, asked.model, asked.cluster, asked.strategy, true}, text_of(request, "to", "the name of a format"));
  Json files = Json::array();
  for (const ExportedFile& file : exported.files) files.push_back({{"name", file.name}, {"text", file.text}});
  return Json{{"schema", "plimsoll/export/1"}, {"files", std::move(files)}, {"command", exported.command}, {"no_equal", exported.no_equal}}
             .dump() +
         "\n";
}
#endif

std::string answer_estimate(const Json& request) {
  const Asked asked = asked_run(request);
  return to_json(estimate(asked.model, asked.cluster, asked.strategy));
}

std::optional<std::int64_t> stage_of(const Json& request) {
  const auto stage = request.find("stage");
  if (stage == request.end() || stage->is_null()) return {};
  if (!stage->is_number_integer() || *stage < 0 || *stage > INT32_MAX) fail("must be a pipeline stage, from 0", "request#/stage");
  return stage->get<std::int64_t>();
}

std::string answer_explain(const Json& request) {
  const Asked asked = asked_run(request);
  return to_json(explain(asked.model, asked.cluster, asked.strategy, stage_of(request)));
}

std::string answer_view(const Json& request) {
  const Asked asked = asked_run(request);
  return to_json(view_of(asked.model, asked.cluster, asked.strategy, stage_of(request)));
}

/// A report as a file: {"schema":"plimsoll/report/1","format":…,"text":…}.
std::string answer_report(const Json& request) {
  const std::string format = text_of(request, "format", "html, markdown or csv");
  if (format != "html" && format != "markdown" && format != "csv")
    fail("there is no format '" + format + "'", "request#/format", suggest(format, {"html", "markdown", "csv"}));
  const Asked asked = asked_run(request);
  const Document document = format == "html" ? document_of(view_of(asked.model, asked.cluster, asked.strategy, stage_of(request)))
                                             : document_of(estimate(asked.model, asked.cluster, asked.strategy));
  const std::string text = format == "html" ? to_html(document) : format == "csv" ? to_csv(document) : to_markdown(document);
  return Json{{"schema", "plimsoll/report/1"}, {"format", format}, {"text", text}}.dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
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
  Json changed = request.value("strategy", Json::object());
  changed[key] = value;
  try {
    (void)resolve(parse_strategy(changed.dump(), "strategy"), model, cluster);
    return nullptr;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    return error.what();
  }
}

/// For menus: of every value of every key that the caller offers, why it cannot be taken with all else as it is; null where it can.
std::string answer_choices(const Json& request) {
  constexpr std::size_t kMostValues = 500;
  const Json& keys = member(request, "keys", "an object of keys, each with a list of values");
  if (!keys.is_object()) fail("must be an object of keys, each with a list of values", "request#/keys");
  const Model model = model_of(request);
  const Cluster cluster = cluster_of(request);
  (void)strategy_of(request);
  Json answer = Json::object();
  std::size_t values = 0;
  for (const auto& [key, list] : keys.items()) {
    if (!list.is_array()) fail("must be a list of values", "request#/keys/" + key);
    if ((values += list.size()) > kMostValues) fail("more than 500 values at once", "request#/keys");
    answer[key] = Json::array();
    for (const Json& value : list) answer[key].push_back(refusal_of(request, model, cluster, key, value));
  }
  return Json{{"schema", "plimsoll/choices/1"}, {"refused", std::move(answer)}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
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
constexpr Entry kEntries[] = {
#ifndef __EMSCRIPTEN__
    {"export", answer_export},     {"resolved", answer_resolved},
#endif
    {"estimate", answer_estimate}, {"explain", answer_explain},   {"view", answer_view},       {"report", answer_report},
    {"models", answer_models},     {"hardware", answer_hardware}, {"options", answer_options}, {"choices", answer_choices},
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

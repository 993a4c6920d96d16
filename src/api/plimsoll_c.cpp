#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

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
std::string answer_foreign(const Json& request) {
  ForeignOptions options;
  if (request.contains("model")) options.model = text_of(request, "model", "a model's name or a path");
  if (request.contains("on")) options.on = text_of(request, "on", "a cluster or a device");
  options.launch_line = texts_of(request, "launch");
  const ForeignRun run = read_foreign(texts_of(request, "from"), options);
  if (request.contains("strategy")) fail("--from and a strategy both say how to train", "request#/strategy", "leave it out");
  return to_json(estimate(run.model, run.cluster, run.strategy));
}

std::string answer_estimate(const Json& request) {
  if (request.contains("from") || request.contains("launch")) return answer_foreign(request);
  return to_json(
      estimate(model_of(request), parse_cluster(text_of(request, "on", "a cluster such as \"8xmi300x\"")), strategy_of(request)));
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
    {"estimate", answer_estimate}, {"models", answer_models}, {"graph", answer_graph}, {"version", answer_version}};

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

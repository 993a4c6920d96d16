#include "api/requests.hpp"

#include <utility>

#include "plimsoll/code.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll::api {
namespace {

constexpr const char* kModel = "a model's name, a path, or a config object";

/// "-" is standard input to the program; to a function it is somebody else's.
std::string no_standard_input(std::string text, const char* key) {
  if (text == "-")
    fail("standard input is not read here", std::string("request#/") + key, "hand the text over as an object, or in \"files\"");
  return text;
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

std::vector<NamedText> files_of(const Json& request) {
  const auto list = request.find("files");
  std::vector<NamedText> files;
  if (list == request.end()) return files;
  if (!list->is_array()) fail("must be a list of files", "request#/files");
  for (const Json& one : *list) {
    if (!one.is_object()) fail("must be a list of objects with a name and a text", "request#/files");
    files.push_back({text_of(one, "name", "the file's name"), text_of(one, "text", "the file's text")});
  }
  return files;
}

}  // namespace

const Json& member(const Json& request, const char* key, const char* expected) {
  const auto found = request.find(key);
  if (found == request.end()) fail(std::string("missing: ") + expected, std::string("request#/") + key);
  return *found;
}

std::string text_of(const Json& request, const char* key, const char* expected) {
  const Json& value = member(request, key, expected);
  if (!value.is_string()) fail(std::string("must be ") + expected, std::string("request#/") + key);
  return no_standard_input(value.get<std::string>(), key);
}

std::vector<std::pair<std::string, std::string>> options_of(const Json& options) {
  if (!options.is_object()) fail("must be an object of options", "request#/options");
  std::vector<std::pair<std::string, std::string>> said;
  for (const auto& [key, value] : options.items()) said.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  return said;
}

namespace {

/// A value of JSON as Python writes it.
std::string python_text(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (!value.is_array()) return value.dump();
  std::string items;
  for (const Json& each : value) items += (items.empty() ? "" : ", ") + python_text(each);
  return "[" + items + "]";
}

/// {"code": text, "class": name, "args": {name: value}, "inputs": ["idx:int64[B,S]"]}
Model coded_model(const Json& model) {
  const auto text = [&](const char* key, const char* expected) {
    const auto found = model.find(key);
    if (found == model.end() || !found->is_string()) fail(std::string("must be ") + expected, std::string("request#/model/") + key);
    return found->get<std::string>();
  };
  CodeModel code{text("code", "the text of a Python file"), "code", text("class", "the name of a class in it"), {}, {}};
  if (const auto arguments = model.find("args"); arguments != model.end()) {
    if (!arguments->is_object()) fail("must be an object of arguments", "request#/model/args");
    for (const auto& [name, value] : arguments->items()) code.arguments.emplace_back(name, python_text(value));
  }
  const auto inputs = model.find("inputs");
  if (inputs == model.end() || !inputs->is_array()) fail("must be a list such as [\"idx:int64[B,S]\"]", "request#/model/inputs");
  for (const Json& each : *inputs) {
    if (!each.is_string()) fail("must be a list such as [\"idx:int64[B,S]\"]", "request#/model/inputs");
    code.inputs.push_back(each.get<std::string>());
  }
  return model_of_code(code);
}

}  // namespace

Model model_of(const Json& request) {
  const Json& model = member(request, "model", kModel);
  if (!model.is_object()) return load_model(text_of(request, "model", kModel));
  if (model.contains("code")) return coded_model(model);
  if (!model.contains("files")) return parse_model(model.dump(), "request#/model", "model");
  Json described = model;
  described["on"] = member(request, "on", "a cluster such as \"8xmi300x\"");
  return foreign_run_of(described).model;
}

Cluster cluster_of(const Json& request) { return parse_cluster(text_of(request, "on", "a cluster such as \"8xmi300x\"")); }

Strategy strategy_of(const Json& request) {
  const auto strategy = request.find("strategy"), options = request.find("options");
  if (strategy != request.end() && options != request.end())
    fail("a strategy and options both say how to train", "request#/options", "leave one out");
  Strategy said;
  if (options != request.end()) {
    set_options(said, options_of(*options));
  } else if (strategy != request.end()) {
    if (!strategy->is_object()) fail("must be an object of strategy keys", "request#/strategy");
    said = parse_strategy(strategy->dump(), "request#/strategy");
  }
  return said;
}

ForeignRun foreign_run_of(const Json& request) {
  ForeignOptions options;
  if (request.contains("model")) options.model = text_of(request, "model", "a model's name or a path");
  if (request.contains("on")) options.on = text_of(request, "on", "a cluster or a device");
  options.launch_line = texts_of(request, "launch");
  options.releases = texts_of(request, "releases");
  for (const char* key : {"strategy", "options"})
    if (request.contains(key)) fail("files and a strategy both say how to train", std::string("request#/") + key, "leave it out");
  options.texts = files_of(request);
  std::vector<std::string> from = texts_of(request, "from");
  for (const std::string& path : from) no_standard_input(path, "from");
  if (!request.contains("from"))
    for (const NamedText& file : options.texts) from.push_back(file.name);
  if (from.empty() && options.launch_line.empty()) fail("missing: files of other programs, or a launch line", "request#/files");
  return read_foreign(from, options);
}

AskedRun asked_run(const Json& request) {
  if (request.contains("from") || request.contains("files") || request.contains("launch")) {
    ForeignRun run = foreign_run_of(request);
    const std::string name = run.model_name.empty() ? run.model.name : run.model_name;
    std::vector<SaidKey> said = said_keys(run);
    return {name, std::move(run.model), std::move(run.cluster), std::move(run.strategy), std::move(said)};
  }
  const Json& said = member(request, "model", kModel);
  Strategy strategy = strategy_of(request);
  Model model = as_task_has_it(model_of(request), strategy);
  const std::string name = said.is_string() ? said.get<std::string>() : model.name;
  std::vector<SaidKey> keys = said_keys(strategy, {});
  return {name, std::move(model), cluster_of(request), std::move(strategy), std::move(keys)};
}

Json model_request(const Json& request, const ForeignRun& run) {
  if (!run.model_config.empty()) return Json::parse(run.model_config);
  if (!run.model_name.empty()) return run.model_name;
  Json files = {{"files", request.value("files", Json::array())}};
  for (const char* key : {"from", "launch"})
    if (request.contains(key)) files[key] = request[key];
  return files;
}

}  // namespace plimsoll::api

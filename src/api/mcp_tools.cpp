#include "api/mcp_tools.hpp"

#include <chrono>
#include <memory>
#include <utility>

#include "api/requests.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/explain.hpp"
#include "plimsoll/offers.hpp"
#include "plimsoll/plimsoll.h"
#include "plimsoll/plimsoll.hpp"
#include "plimsoll/search.hpp"

namespace plimsoll::api {
namespace {

using Ordered = nlohmann::ordered_json;

// ---- schemas -----------------------------------------------------------------------------------------------------------

Ordered text(const char* description) { return {{"type", "string"}, {"description", description}}; }

/// What says a run, in the words of docs/c-api.md.
Ordered run_members(bool one_machine) {
  Ordered members = Ordered::object();
  members["model"] = {
      {"type", {"string", "object"}},
      {"description", "a shipped model's name (llama-3.1-8b), a hub name, a path of a config.json, or a whole config object"}};
  if (one_machine) members["on"] = text("GPUs: 8xh100-sxm, 16x8xmi300x (nodes x GPUs), a shipped cluster's name, or a file");
  members["options"] = {
      {"type", "object"},
      {"description",
       "how it trains, by the keys of the resource plimsoll://options: {\"framework\": \"torchtitan\", \"fsdp\": \"full\", \"seq\": "
       "\"8192\", \"micro_batch\": \"1\", \"recompute\": \"full\"}; what is not said is the framework's default"}};
  members["files"] = {
      {"type", "array"},
      {"description", "instead of options: files of the training program (YAML, TOML, JSON, shell scripts), each with name and text"},
      {"items",
       {{"type", "object"},
        {"properties", {{"name", {{"type", "string"}}}, {"text", {{"type", "string"}}}}},
        {"required", {"name", "text"}}}}};
  members["launch"] = {
      {"type", "array"}, {"items", {{"type", "string"}}}, {"description", "instead of options: the words of the launch line"}};
  return members;
}

Ordered schema_of(Ordered members, std::vector<std::string> required = {}) {
  Ordered schema = {{"type", "object"}, {"properties", std::move(members)}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

Ordered with(Ordered members, const char* key, Ordered value) {
  members[key] = std::move(value);
  return members;
}

// ---- answers -----------------------------------------------------------------------------------------------------------

ToolAnswer run_estimate(const Json& arguments) {
  const AskedRun asked = asked_run(arguments);
  Strategy resolved;
  const Report report = estimate_or_nearest(asked.model, asked.cluster, asked.strategy, &resolved);
  return {to_text(report, {}), Json::parse(to_json(report, settled_keys(resolved, asked.said)))};
}

ToolAnswer run_explain(const Json& arguments) {
  constexpr std::size_t kMostChanges = 12;
  const AskedRun asked = asked_run(arguments);
  const Explanation explanation = explain(asked.model, asked.cluster, asked.strategy, {});
  return {to_text(explanation, kMostChanges), Json::parse(to_json(explanation))};
}

ToolAnswer run_make_fit(const Json& arguments) {
  const AskedRun asked = asked_run(arguments);
  if (estimate(asked.model, asked.cluster, asked.strategy).verdict != Verdict::does_not_fit)
    return {"it fits as it is", {{"change", nullptr}}};
  Json answer = called(arguments, "rescue").structured;
  const Json& change = answer["change"];
  if (change.is_null()) return {"no change of the strategy that was tried makes it fit: take more or larger GPUs", std::move(answer)};
  const Bytes device(change["device_bytes"].get<std::int64_t>());
  return {"fits with " + change["flag"].get<std::string>() + ": " + to_string(device) + " per GPU", std::move(answer)};
}

ToolAnswer run_machines(const Json& arguments) {
  const auto offered = [&](const std::string& machine) {
    Json there = arguments;
    there["on"] = machine;
    const AskedRun asked = asked_run(there);
    return offer_of(machine, asked.cluster, estimate(asked.model, asked.cluster, asked.strategy));
  };
  const std::vector<MachineOffer> offers = offers_on(machines_of(text_of(arguments, "machines", "machines, separated by commas, or \"any\"")), offered);
  return {to_text(offers, {}), Json::parse(to_json(offers))};
}

/// The axes are those that the framework has and the options do not pin. Stops after some minutes with the best that is known.
ToolAnswer run_search(const Json& arguments) {
  constexpr auto kLongest = std::chrono::minutes(3);
  const AskedRun asked = asked_run(arguments);
  SearchRequest request;
  request.model = asked.model;
  request.cluster = asked.cluster;
  request.model_word = asked.name;
  request.cluster_word = arguments.value("on", std::string());
  request.base = asked.strategy;
  request.top = 5;
  const auto started = std::chrono::steady_clock::now();
  const SearchResult result = search(request, [&](const SearchProgress&) { return std::chrono::steady_clock::now() - started < kLongest; });
  return {to_text(result), Json::parse(to_json(result))};
}

ToolAnswer run_export(const Json& arguments) {
  text_of(arguments, "to", "the name of a format");
  Json answer = called(arguments, "export").structured;
  std::string said;
  for (const Json& file : answer["files"]) said += "==> " + file["name"].get<std::string>() + "\n" + file["text"].get<std::string>() + "\n";
  return {said + answer["command"].get<std::string>() + "\n", std::move(answer)};
}

std::vector<Tool> all_tools() {
  return {
      {"estimate", "Estimate a training step",
       "Does a training run fit the GPUs' memory, how long does a step take and why: memory per GPU by part, time by part with its band, "
       "MFU, assumptions. Say "
       "model, on and options, or files and launch of the training program. Ask this before booking GPUs or changing a launch script.",
       schema_of(run_members(true)), run_estimate},
      {"explain", "Explain memory and time",
       "What takes the memory at the peak and the time of the step, and which single changes would lower either most, each estimated.",
       schema_of(run_members(true)), run_explain},
      {"make_it_fit", "Make a run fit", "The change of a run that does not fit with which it would: a flag, and the memory it needs then.",
       schema_of(run_members(true)), run_make_fit},
      {"compare_machines", "Compare machines for one job",
       "One job on several machines: memory left, step, tokens a second, dollars per billion tokens.",
       schema_of(with(run_members(false), "machines",
                      text("separated by commas, \"8xh100-sxm,8xmi300x\"; or \"any\": a node of every device with a price")),
                 {"machines"}),
       run_machines},
      {"search", "Search for the best strategy",
       "The fastest parallel strategy of a model on a cluster that fits, the runners-up and the trade-offs; options pin what may not "
       "change (global_batch, seq, "
       "framework). Takes seconds to minutes.",
       schema_of(run_members(true)), run_search},
      {"export", "Write a plan as files",
       "The plan as another program's files, ready to launch; `to`: torchtitan, megatron, deepspeed, accelerate, axolotl, …",
       schema_of(with(run_members(true), "to", text("the format's name")), {"to"}), run_export},
      {"read", "Read a training program's files",
       "What configuration files, scripts or a launch line of a training program resolve to: every key, its value, and where it is from.",
       schema_of(run_members(true)), [](const Json& arguments) { return called(arguments, "read"); }},
  };
}

}  // namespace

ToolAnswer called(Json request, const char* command) {
  request["command"] = command;
  const std::unique_ptr<char, void (*)(char*)> answer(plimsoll_call(request.dump(-1, ' ', false, Json::error_handler_t::replace).c_str()),
                                                      plimsoll_free);
  if (!answer) throw std::bad_alloc();
  Json json = Json::parse(answer.get());
  if (const auto error = json.find("error"); error != json.end())
    throw Error(ErrorCode::bad_input, error->value("message", "refused"), error->value("where", ""), error->value("hint", ""));
  return {answer.get(), std::move(json)};
}

const std::vector<Tool>& tools() {
  static const std::vector<Tool> kTools = all_tools();
  return kTools;
}

}  // namespace plimsoll::api

// "plimsoll/search/1", documented in docs/search.md.
#include <nlohmann/json.hpp>

#include "estimate/residuals.hpp"
#include "plimsoll/search.hpp"
#include "report/json_text.hpp"
#include "search/comparison.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;
using namespace searching;

Json options_object(const SearchPlan& plan) {
  Json options = Json::object();
  for (const auto& [key, value] : plan.options) options[key] = value;
  return options;
}

Json plan_object(const EstimatedPlan& plan, const EstimatedPlan* best) {
  const RankMemory& memory = plan.report.worst_rank().memory;
  const Band& step = plan.report.time.step_seconds;
  Json breakdown = Json::object();
  for (const TimePart& part : plan.report.time.breakdown) breakdown[part.name] = part.seconds.value;
  Json object = {{"index", plan.plan.index},
                 {"gpus", plan.plan.gpus},
                 {"tokens_per_step", plan.plan.tokens},
                 {"options", options_object(plan.plan)},
                 {"command", plan.command},
                 {"step_seconds", {{"low", step.low}, {"expected", step.expected}, {"high", step.high}}},
                 {"decisive_difference", estimation::decisive_difference(plan.report.framework)},
                 {"tokens_per_second_per_gpu", plan.report.time.tokens_per_second_per_gpu},
                 {"gpu_seconds", plan.gpu_seconds()},
                 {"device_bytes", static_cast<std::int64_t>(memory.device.expected)},
                 {"headroom_bytes", plan.headroom().count},
                 {"verdict", name_of(plan.report.verdict)},
                 {"breakdown", std::move(breakdown)}};
  if (best != nullptr && best != &plan) {
    const Steps its = steps_of(plan), of_best = steps_of(*best);
    object["equal_within_error"] = equal_within_error(its, of_best);
    if (equal_within_error(its, of_best)) object["deciding_experiment"] = deciding_experiment(its, of_best);
  }
  return object;
}

Json plans_array(const std::vector<EstimatedPlan>& plans, const EstimatedPlan* best) {
  Json array = Json::array();
  for (const EstimatedPlan& plan : plans) array.push_back(plan_object(plan, best));
  return array;
}

Json offers_array(const std::vector<FrontOffer>& offers) {
  Json array = Json::array();
  for (const FrontOffer& offer : offers)
    array.push_back({{"gpus", offer.gpus},
                     {"sixteenth", offer.sixteenth},
                     {"screened_seconds_per_token", offer.seconds_per_token},
                     {"index", offer.index},
                     {"plan", offer.plan ? plan_object(*offer.plan, nullptr) : Json(nullptr)}});
  return array;
}

Json rejected_object(const SearchResult& result) {
  Json rejected = Json::object();
  for (const auto& [reason, rejection] : result.rejected) rejected[reason] = rejection.count;
  return rejected;
}

Json rescues_object(const SearchResult& result) {
  Json rescues = Json::object();
  for (const auto& [reason, rejection] : result.rejected)
    if (!rejection.example.empty() || !rejection.rescue.empty()) {
      rescues[reason] = {{"example", rejection.example}};
      if (!rejection.nearest.options.empty()) {
        rescues[reason]["nearest"] = options_object(rejection.nearest);
        rescues[reason]["nearest_seconds"] = rejection.nearest_seconds;
        rescues[reason]["nearest_tokens"] = rejection.nearest.tokens;
      }
      if (!rejection.rescue.empty()) rescues[reason]["rescue"] = rejection.rescue;
    }
  return rescues;
}

}  // namespace

std::string to_json(const SearchResult& result) {
  constexpr const char* kGoals[] = {"time", "gpus", "cost"};
  Json axes = Json::array();
  for (const SearchAxis& axis : result.axes) axes.push_back({{"key", axis.key}, {"values", axis.values}});
  const EstimatedPlan* best = result.best.empty() ? nullptr : &result.best.front();
  Json object = {{"schema", "plimsoll/search/1"},
                 {"model", result.model},
                 {"cluster", result.cluster},
                 {"fingerprint", result.fingerprint},
                 {"goal", kGoals[static_cast<int>(result.goal)]},
                 {"free_batch", result.free_batch},
                 {"shard", result.shard},
                 {"shards", result.shards},
                 {"complete", result.complete},
                 {"axes", std::move(axes)},
                 {"points", result.points},
                 {"legal", result.legal},
                 {"screened", result.screened},
                 {"estimated", result.estimated},
                 {"instances", result.probes},
                 {"seconds", result.seconds},
                 {"screening_seconds", result.screening_seconds},
                 {"screened_per_second", result.screened_per_second()},
                 {"best", best == nullptr ? Json(nullptr) : plan_object(*best, nullptr)},
                 {"top", plans_array(result.best, best)},
                 {"front", plans_array(result.front, nullptr)},
                 {"rejected", rejected_object(result)},
                 {"rescues", rescues_object(result)},
                 {"notes", result.notes}};
  if (result.shards > 1) object["offers"] = offers_array(result.offers);
  return json_text(object);
}

}  // namespace plimsoll

// Shards of one search put together: each holds the exact best of its part and what it offers for the front, so theirs are the whole's.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "plimsoll/error.hpp"
#include "plimsoll/search.hpp"
#include "report/json_text.hpp"
#include "search/comparison.hpp"
#include "units/json_reader.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

void check_plan(const JsonValue& plan) {
  (void)plan["index"].integer(0, INT64_MAX);
  (void)plan["gpus"].integer(1, INT64_MAX);
  (void)plan["tokens_per_step"].integer(1, INT64_MAX);
  (void)plan["step_seconds"]["expected"].number(0, 1e12);
  (void)plan["decisive_difference"].number(0, 1e3);
  for (const std::string& part : plan["breakdown"].keys()) (void)plan["breakdown"][part].number(0, 1e12);
  (void)plan["headroom_bytes"].integer(INT64_MIN, INT64_MAX);
  (void)plan["gpu_seconds"].number(0, 1e18);
}

/// The reader checks the text, its size and what the merge relies on; the rest is carried over as it is.
Json read_shard(const std::string& name, const std::string& text) {
  const JsonDocument document = JsonDocument::parse(text, name);
  const JsonValue root = document.root();
  if (root["schema"].text() != "plimsoll/search/1") root["schema"].expected("\"plimsoll/search/1\"");
  (void)root["fingerprint"].text();
  (void)root["complete"].boolean();
  const std::int64_t shards = root["shards"].integer(1, 1'000'000);
  (void)root["shard"].integer(0, shards - 1);
  for (const char* count : {"legal", "screened", "estimated", "instances"}) (void)root[count].integer(0, INT64_MAX);
  for (const char* seconds : {"seconds", "screening_seconds"}) (void)root[seconds].number(0, 1e12);
  for (const char* list : {"top", "front"})
    for (const JsonValue& plan : root[list].elements()) check_plan(plan);
  if (shards > 1)
    for (const JsonValue& offer : root["offers"].elements()) {
      for (const char* number : {"gpus", "sixteenth", "index"}) (void)offer[number].integer(0, INT64_MAX);
      (void)offer["screened_seconds_per_token"].number(0, 1e12);
      if (!offer["plan"].is_null()) check_plan(offer["plan"]);
    }
  for (const std::string& reason : root["rejected"].keys()) (void)root["rejected"][reason].integer(0, INT64_MAX);
  return Json::parse(text);
}

double seconds_of(const Json& plan) { return plan["step_seconds"]["expected"].get<double>(); }

double seconds_per_token(const Json& plan) { return seconds_of(plan) / plan["tokens_per_step"].get<double>(); }

/// As plans are ordered in a search (score_of).
bool before(const std::string& goal, const Json& a, const Json& b) {
  const auto key = [&](const Json& plan) {
    const double seconds = seconds_per_token(plan), gpus = plan["gpus"].get<double>();
    const double first = goal == "gpus" ? gpus : goal == "cost" ? gpus * seconds : seconds;
    return std::tuple(first, goal == "time" ? gpus : seconds, plan["index"].get<std::int64_t>());
  };
  return key(a) < key(b);
}

bool dominates(const Json& a, const Json& b) {
  const double faster = seconds_per_token(b) - seconds_per_token(a), fewer = b["gpus"].get<double>() - a["gpus"].get<double>();
  const double cheaper = b["gpus"].get<double>() * seconds_per_token(b) - a["gpus"].get<double>() * seconds_per_token(a);
  const double roomier = a["headroom_bytes"].get<double>() - b["headroom_bytes"].get<double>();
  const bool no_worse = faster >= 0 && fewer >= 0 && cheaper >= 0 && roomier >= 0;
  return no_worse &&
         (faster > 0 || fewer > 0 || cheaper > 0 || roomier > 0 || a["index"].get<std::int64_t>() < b["index"].get<std::int64_t>());
}

Json front_of(const std::vector<Json>& plans) {
  std::vector<Json> front;
  for (const Json& plan : plans)
    if (std::none_of(plans.begin(), plans.end(), [&](const Json& other) { return dominates(other, plan); })) front.push_back(plan);
  std::sort(front.begin(), front.end(), [](const Json& a, const Json& b) { return before("time", a, b); });
  return front;
}

void take_counts(const Json& shard, Json& whole) {
  const auto nearest = [](const Json& rescue) { return rescue.value("nearest_seconds", 0.0) / rescue.value("nearest_tokens", 1.0); };
  for (const char* count : {"legal", "screened", "estimated", "instances"})
    whole[count] = whole[count].get<std::int64_t>() + shard[count].get<std::int64_t>();
  for (const char* seconds : {"seconds", "screening_seconds"}) whole[seconds] = whole[seconds].get<double>() + shard[seconds].get<double>();
  for (const auto& [reason, count] : shard["rejected"].items())
    whole["rejected"][reason] = whole["rejected"].value(reason, std::int64_t{0}) + count.get<std::int64_t>();
  for (const auto& [reason, rescue] : shard["rescues"].items()) {
    Json& told = whole["rescues"][reason];
    if (told.is_null() || nearest(rescue) < nearest(told)) told = rescue;
  }
  whole["complete"] = whole["complete"].get<bool>() && shard["complete"].get<bool>();
}

searching::Steps steps_of(const Json& plan) {
  searching::Steps steps{seconds_of(plan), plan["tokens_per_step"].get<double>(), plan["decisive_difference"].get<double>(), {}};
  for (const auto& [part, seconds] : plan["breakdown"].items()) steps.parts.emplace_back(part, seconds.get<double>());
  return steps;
}

/// Runners-up are equal to the whole's best, or not, whatever they were to their shard's.
void compare_with_best(std::vector<Json>& top) {
  for (Json& plan : top) {
    plan.erase("equal_within_error");
    plan.erase("deciding_experiment");
    if (plan["index"] == top.front()["index"]) continue;
    const searching::Steps its = steps_of(plan), best = steps_of(top.front());
    plan["equal_within_error"] = searching::equal_within_error(its, best);
    if (searching::equal_within_error(its, best)) plan["deciding_experiment"] = searching::deciding_experiment(its, best);
  }
}

/// The best of every shard, in the order of the goal.
std::vector<Json> plans_of(const std::vector<Json>& shards, const std::string& goal) {
  std::vector<Json> plans;
  for (const Json& shard : shards)
    for (const Json& plan : shard["top"]) plans.push_back(plan);
  std::sort(plans.begin(), plans.end(), [&](const Json& a, const Json& b) { return before(goal, a, b); });
  return plans;
}

/// The plans, and what the whole search would have offered for its front: of every cluster size and sixteenth of the memory the fastest of
/// all shards, where no roomier one is as fast.
std::vector<Json> with_offers(const std::vector<Json>& shards, std::vector<Json> plans) {
  const auto faster = [](const Json& a, const Json& b) {
    const auto key = [](const Json& offer) {
      return std::pair(offer["screened_seconds_per_token"].get<double>(), offer["index"].get<std::int64_t>());
    };
    return key(a) < key(b);
  };
  std::map<std::int64_t, std::map<std::int64_t, Json, std::greater<>>> offers;  // by GPUs, the roomiest first
  for (const Json& shard : shards)
    for (const Json& offer : shard["offers"]) {
      auto& of_size = offers[offer["gpus"].get<std::int64_t>()];
      const auto [held, fresh] = of_size.try_emplace(offer["sixteenth"].get<std::int64_t>(), offer);
      if (!fresh && faster(offer, held->second)) held->second = offer;
    }
  std::set<std::int64_t> seen;
  for (const Json& plan : plans) seen.insert(plan["index"].get<std::int64_t>());
  for (const auto& [gpus, of_size] : offers) {
    double fastest = std::numeric_limits<double>::infinity();
    for (const auto& [sixteenth, offer] : of_size) {
      const double seconds = offer["screened_seconds_per_token"].get<double>();
      if (seconds >= fastest) continue;
      fastest = seconds;
      if (!offer["plan"].is_null() && seen.insert(offer["index"].get<std::int64_t>()).second) plans.push_back(offer["plan"]);
    }
  }
  return plans;
}

}  // namespace

std::string merge_searches(const std::vector<std::pair<std::string, std::string>>& files) {
  if (files.empty()) fail("no shard was given", "merge", "plimsoll merge shard-*.json");
  std::vector<Json> shards;
  std::set<std::int64_t> numbers;
  for (const auto& [name, text] : files) {
    Json shard = read_shard(name, text);
    if (!shards.empty() && shard["fingerprint"] != shards.front()["fingerprint"])
      fail("it is of another search than " + files.front().first, name, "merge shards of the same model, cluster, axes and options");
    if (!shards.empty() && shard["shards"] != shards.front()["shards"])
      fail("it is one of another number of shards than " + files.front().first, name);
    if (!numbers.insert(shard["shard"].get<std::int64_t>()).second) fail("its shard was given already", name, "leave one of them out");
    shards.push_back(std::move(shard));
  }
  Json whole = shards.front();
  const std::string goal = whole["goal"].get<std::string>();
  std::size_t most = 1;
  for (const Json& shard : shards) most = std::max(most, shard["top"].size());
  for (std::size_t i = 1; i < shards.size(); ++i) take_counts(shards[i], whole);
  std::vector<Json> top = plans_of(shards, goal);
  top.resize(std::min(top.size(), most));
  if (whole["shards"].get<std::int64_t>() > 1) whole["front"] = front_of(with_offers(shards, top));
  whole.erase("offers");
  compare_with_best(top);
  whole["best"] = top.empty() ? Json(nullptr) : top.front();
  whole["top"] = top;
  whole["complete"] = whole["complete"].get<bool>() && static_cast<std::int64_t>(numbers.size()) == whole["shards"].get<std::int64_t>();
  const double screening = whole["screening_seconds"].get<double>();
  whole["screened_per_second"] = screening > 0 ? whole["screened"].get<double>() / screening : 0;
  if (static_cast<std::int64_t>(numbers.size()) < whole["shards"].get<std::int64_t>())
    whole["notes"].push_back(fmt::format("{} of {} shards", numbers.size(), whole["shards"].get<std::int64_t>()));
  return json_text(whole);
}

namespace {

SearchPlan plan_of(const JsonValue& plan) {
  SearchPlan read;
  read.index = static_cast<std::uint64_t>(plan["index"].integer(0, INT64_MAX));
  read.gpus = plan["gpus"].integer(1, INT64_MAX);
  read.tokens = plan["tokens_per_step"].integer(1, INT64_MAX);
  for (const std::string& key : plan["options"].keys()) read.options.emplace_back(key, plan["options"][key].text());
  return read;
}

EstimatedPlan estimated(const SearchRequest& request, const JsonValue& read) {
  EstimatedPlan plan{plan_of(read), {}, {}};
  plan.report = estimate(request.model, part_of(request.cluster, plan.plan.gpus), strategy_of(request, plan.plan));
  plan.command = command_of(request, plan.plan);
  return plan;
}

void read_rejected(const JsonValue& root, SearchResult& result) {
  for (const std::string& reason : root["rejected"].keys())
    result.rejected[reason].count = static_cast<std::uint64_t>(root["rejected"][reason].integer(0, INT64_MAX));
  for (const std::string& reason : root["rescues"].keys()) {
    const JsonValue rescue = root["rescues"][reason];
    SearchRejection& rejection = result.rejected[reason];
    rejection.example = rescue["example"].text();
    if (const auto words = rescue.find("rescue")) rejection.rescue = words->text();
    if (const auto seconds = rescue.find("nearest_seconds")) rejection.nearest_seconds = seconds->number(0, 1e300);
    if (const auto tokens = rescue.find("nearest_tokens")) rejection.nearest.tokens = tokens->integer(1, INT64_MAX);
    if (const auto nearest = rescue.find("nearest"))
      for (const std::string& key : nearest->keys()) rejection.nearest.options.emplace_back(key, (*nearest)[key].text());
  }
}

}  // namespace

SearchResult result_of(const SearchRequest& request, const std::string& json) {
  const JsonDocument document = JsonDocument::parse(json, "search");
  const JsonValue root = document.root();
  SearchResult result;
  result.model = request.model.name;
  result.cluster = request.cluster.name;
  result.fingerprint = root["fingerprint"].text();
  result.goal = request.goal;
  result.free_batch = free_batch(request);
  for (const JsonValue& axis : root["axes"].elements()) {
    result.axes.push_back({axis["key"].text(), {}});
    for (const JsonValue& value : axis["values"].elements()) result.axes.back().values.push_back(value.text());
  }
  const auto count = [&](const char* key) { return static_cast<std::uint64_t>(root[key].integer(0, INT64_MAX)); };
  result.points = root["points"].number(0, 1e300);
  result.legal = count("legal");
  result.screened = count("screened");
  result.estimated = count("estimated");
  result.probes = count("instances");
  result.seconds = root["seconds"].number(0, 1e12);
  result.screening_seconds = root["screening_seconds"].number(0, 1e12);
  result.complete = root["complete"].boolean();
  for (const JsonValue& plan : root["top"].elements()) result.best.push_back(estimated(request, plan));
  for (const JsonValue& plan : root["front"].elements()) result.front.push_back(estimated(request, plan));
  read_rejected(root, result);
  for (const JsonValue& note : root["notes"].elements()) result.notes.push_back(note.text());
  return result;
}

}  // namespace plimsoll

#include "search/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plimsoll/error.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::searching {
namespace {

constexpr const char* kSchema = "plimsoll/search-state/3";
constexpr double kMost = 1e18;  // seconds or bytes of anything
constexpr int kOutcomes = 5;

std::vector<double> numbers(const JsonValue& list) {
  std::vector<double> values;
  for (const JsonValue& each : list.elements()) values.push_back(each.number(-kMost, kMost));
  return values;
}

Seen seen_in(const JsonValue& row) {
  return {row.at(1).number(-kMost, kMost),
          row.at(2).number(-kMost, kMost),
          row.at(3).number(-kMost, kMost),
          row.at(4).boolean(),
          numbers(row.at(5)),
          numbers(row.at(6)),
          numbers(row.at(7)),
          row.at(8).number(-kMost, kMost),
          row.at(9).number(-kMost, kMost)};
}

}  // namespace

State::State(const std::string& text, const SearchRequest& request, const std::string& fingerprint) {
  if (text.empty()) return;
  const JsonDocument document = JsonDocument::parse(text, "resume", {std::int64_t{1} << 30, 50'000'000, 8});
  const JsonValue root = document.root();
  if (root["schema"].text() != kSchema) root["schema"].expected(fmt::format("\"{}\"", kSchema));
  const auto shard = static_cast<std::uint64_t>(root["shard"].integer(0, INT64_MAX)),
             shards = static_cast<std::uint64_t>(root["shards"].integer(1, INT64_MAX));
  if (root["fingerprint"].text() != fingerprint || shard != request.shard || shards != std::max<std::uint64_t>(1, request.shards))
    fail("it is the state of another search", root["fingerprint"].where(),
         "give the same model, cluster, axes, options and shard, or another file");
  for (const JsonValue& row : root["instances"].elements()) instances_.emplace(row.at(0).text(), seen_in(row));
  for (const JsonValue& row : root["outcomes"].elements())
    outcomes_[static_cast<std::uint64_t>(row.at(0).integer(0, INT64_MAX))] = {
        static_cast<Outcome::What>(row.at(1).integer(0, kOutcomes - 1)), row.at(2).number(0, kMost), row.at(3).integer(0, INT64_MAX),
        row.at(4).text()};
}

std::string State::text(const SearchRequest& request, const std::string& fingerprint) const {
  using Json = nlohmann::ordered_json;
  const std::lock_guard lock(mutex_);
  Json instances = Json::array(), outcomes = Json::array();
  for (const auto& [key, seen] : instances_)
    instances.push_back({key, seen.seconds, seen.outside, seen.cache, seen.played, seen.allocated, seen.persistent, seen.passes,
                         seen.of_passes, seen.kept});
  for (const auto& [index, outcome] : outcomes_)
    outcomes.push_back({index, static_cast<int>(outcome.what), outcome.seconds_per_token, outcome.gpus, outcome.because});
  const Json state = {{"schema", kSchema},
                      {"fingerprint", fingerprint},
                      {"shard", request.shard},
                      {"shards", std::max<std::uint64_t>(1, request.shards)},
                      {"instances", std::move(instances)},
                      {"outcomes", std::move(outcomes)}};
  return state.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Seen> State::instance(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = instances_.find(key);
  return found == instances_.end() ? std::nullopt : std::optional(found->second);
}

Seen State::tell(std::string key, Seen seen) {
  const std::lock_guard lock(mutex_);
  return instances_.emplace(std::move(key), std::move(seen)).first->second;
}

std::optional<Outcome> State::outcome(std::uint64_t index) const {
  const std::lock_guard lock(mutex_);
  const auto found = outcomes_.find(index);
  return found == outcomes_.end() ? std::nullopt : std::optional(found->second);
}

void State::tell(std::uint64_t index, Outcome outcome) {
  const std::lock_guard lock(mutex_);
  outcomes_.emplace(index, std::move(outcome));
}

std::vector<std::pair<std::uint64_t, Outcome>> State::standing() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::uint64_t, Outcome>> plans;
  for (const auto& each : outcomes_)
    if (each.second.what == Outcome::What::stands) plans.push_back(each);
  return plans;
}

}  // namespace plimsoll::searching

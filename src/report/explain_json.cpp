// "plimsoll/explain/1", documented in docs/explain.md.
#include <nlohmann/json.hpp>

#include "plimsoll/report.hpp"
#include "report/json_text.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t whole(double bytes) { return static_cast<std::int64_t>(bytes); }

Json peak_object(const RankMemory& memory) {
  if (memory.basis != Basis::played) return {{"played", false}, {"reason", memory.closed_form_because}};
  return {{"played", true}, {"step", memory.peak_step + 1}, {"phase", name_of(memory.peak_phase)}, {"label", memory.peak_label}};
}

Json memory_object(const RankMemory& memory) {
  Json categories = Json::object();
  for (const MemoryPart& part : memory.parts) categories[part.name] = part.bytes.count;
  Json object = Json::object();
  if (memory.basis == Basis::played) object["requested_bytes"] = memory.requested.count;
  object["allocated_bytes"] = memory.allocated.count;
  object["reserved_bytes"] = memory.reserved.count;
  object["device_bytes"] = {
      {"low", whole(memory.device.low)}, {"expected", whole(memory.device.expected)}, {"high", whole(memory.device.high)}};
  object["capacity_bytes"] = memory.capacity.count;
  object["categories"] = std::move(categories);
  if (memory.out_of_memory) object["out_of_memory_at"] = memory.out_of_memory_at;
  return object;
}

Json alive_array(const std::vector<PeakGroup>& alive) {
  Json array = Json::array();
  for (const PeakGroup& group : alive)
    array.push_back({{"category", name_of(group.category)},
                     {"module", group.module},
                     {"operation", group.operation},
                     {"count", group.count},
                     {"bytes", group.bytes.count},
                     {"largest_bytes", group.largest.count}});
  return array;
}

Json changes_array(const std::vector<Change>& changes) {
  Json array = Json::array();
  for (const Change& change : changes)
    array.push_back({{"flag", change.flag},
                     {"said", change.said},
                     {"saved_bytes", change.saved.count},
                     {"device_bytes", change.device.count},
                     {"verdict", name_of(change.verdict)},
                     {"step_time_ratio", change.slowdown ? Json(*change.slowdown) : Json()},
                     {"fewer_bits", change.fewer_bits},
                     {"larger_batch", change.larger_batch}});
  return array;
}

Json kernels_array(const std::vector<DearKernel>& dearest) {
  Json array = Json::array();
  for (const DearKernel& each : dearest)
    array.push_back({{"kernel", each.what}, {"label", each.label}, {"launches", each.launches}, {"seconds", each.seconds.value}, {"bound_by", each.limit}});
  return array;
}

Json collectives_array(const std::vector<DearCollective>& collectives) {
  Json array = Json::array();
  for (const DearCollective& each : collectives)
    array.push_back({{"collective", each.what}, {"launches", each.launches}, {"bytes", each.bytes.count}, {"seconds", each.seconds.value}, {"exposed_seconds", each.exposed.value}});
  return array;
}

Json incomparable_array(const std::vector<Incomparable>& incomparable) {
  Json array = Json::array();
  for (const Incomparable& other : incomparable) array.push_back({{"flag", other.flag}, {"reason", other.reason}});
  return array;
}

}  // namespace

std::string to_json(const Explanation& explanation) {
  const RankReport& rank = explanation.explained();
  const Json object = {
      {"schema", "plimsoll/explain/1"},
      {"verdict", name_of(explanation.report.verdict)},
      {"model", explanation.report.model_name},
      {"cluster", explanation.report.cluster_name},
      {"strategy", explanation.report.strategy},
      {"stage", rank.stage},
      {"peak", peak_object(rank.memory)},
      {"memory", memory_object(rank.memory)},
      {"alive", alive_array(explanation.alive)},
      {"changes", changes_array(explanation.changes)},
      {"step_seconds", explanation.report.time.step_seconds.expected},
      {"causes", explanation.causes},
      {"dearest", kernels_array(explanation.report.time.dearest)},
      {"collectives", collectives_array(explanation.collectives)},
      {"faster", changes_array(explanation.faster)},
      {"not_compared", incomparable_array(explanation.incomparable)},
  };
  return json_text(object);
}

}  // namespace plimsoll

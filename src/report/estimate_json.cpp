// "plimsoll/estimate/1", documented in docs/estimate-json.md.
#include <nlohmann/json.hpp>

#include "plimsoll/hardware.hpp"
#include "plimsoll/report.hpp"
#include "plimsoll/settled_keys.hpp"
#include "report/json_text.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

/// A number, or {low, expected, high} where a band is known. `as` gives the JSON number its type.
template <class Number>
Json quantity(const Band& band, Number (*as)(double)) {
  if (!band.known()) return as(band.expected);
  return {{"low", as(band.low)}, {"expected", as(band.expected)}, {"high", as(band.high)}};
}

std::int64_t whole(double value) { return static_cast<std::int64_t>(value); }
double real(double value) { return value; }

Json memory_object(const RankMemory& memory) {
  Json categories = Json::object();
  for (const MemoryPart& part : memory.parts) categories[part.name] = part.bytes.count;
  Json object = Json::object();
  if (memory.requested > Bytes(0)) object["requested_bytes"] = memory.requested.count;
  object["allocated_bytes"] = memory.allocated.count;
  object["reserved_bytes"] = memory.reserved.count;
  object["device_bytes"] = quantity(memory.device, whole);
  object["capacity_bytes"] = memory.capacity.count;
  object["categories"] = std::move(categories);
  if (memory.phases.empty()) return object;
  Json phases = Json::array();
  for (const PhaseMemory& each : memory.phases)
    phases.push_back({{"phase", name_of(each.phase)},
                      {"allocated_bytes", each.allocated.count},
                      {"reserved_bytes", each.reserved.count},
                      {"engine_bytes", each.engine.count},
                      {"device_bytes", each.device.count}});
  object["phases"] = std::move(phases);
  return object;
}

Json ranks_array(const Report& report) {
  Json ranks = Json::array();
  for (const RankReport& rank : report.ranks) {
    Json object = {{"stage", rank.stage}, {"count", rank.count}, {"memory", memory_object(rank.memory)}};
    if (rank.host > Bytes(0)) object["host_bytes"] = rank.host.count;
    if (rank.work) object["work"] = {{"launches", rank.work->launches}, {"gemms", rank.work->gemms}, {"gemm_flops", rank.work->gemm_flops}};
    ranks.push_back(std::move(object));
  }
  return ranks;
}

Json time_object(const TimeReport& time) {
  Json breakdown = Json::object();
  for (const TimePart& part : time.breakdown) breakdown[part.name] = part.seconds.value;
  Json dearest = Json::array();
  for (const DearKernel& each : time.dearest)
    dearest.push_back(
        {{"kernel", each.what}, {"label", each.label}, {"launches", each.launches}, {"seconds", each.seconds.value}, {"bound_by", each.limit}});
  Json object = {{"step_seconds", quantity(time.step_seconds, real)}, {"tokens_per_second_per_gpu", time.tokens_per_second_per_gpu}};
  if (time.images_per_second_per_gpu > 0) object["images_per_second_per_gpu"] = time.images_per_second_per_gpu;
  object["basis"] = name_of(time.basis);
  object["breakdown"] = std::move(breakdown);
  object["dearest"] = std::move(dearest);
  object["advice"] = time.advice;
  return object;
}

Json flops_object(const FlopsReport& flops) {
  Json per_token = Json::object(), mfu = Json::object();
  for (const FlopsConvention& convention : flops.conventions) {
    per_token[convention.name] = convention.model_flops_per_token;
    mfu[convention.name] = convention.mfu;
  }
  return {{"model_flops_per_token", std::move(per_token)}, {"mfu", std::move(mfu)}, {"hfu", flops.hfu}};
}

/// A key's value by what it is: true, 8, [1, 2] or text.
Json typed(const std::string& value) {
  const Json read = Json::parse(value, nullptr, false);
  return read.is_discarded() ? Json(value) : read;
}

/// Keys whose text may look like a number: releases.
bool is_text(const std::string& key) { return key == "torch" || key == "transformers"; }

Json strategy_object(const std::vector<SettledKey>& settings) {
  Json object = Json::object();
  for (const SettledKey& each : settings)
    object[each.key] = {
        {"value", is_text(each.key) ? Json(each.value) : typed(each.value)}, {"from", name_of(each.by)}, {"where", each.where}};
  return object;
}

Json host_object(const HostMemory& host) {
  Json object = {{"ranks", host.ranks}, {"kept_bytes", host.kept.count}};
  if (host.loading > Bytes(0)) object["loading_bytes"] = host.loading.count;
  if (!host.capacity) return object;
  object["capacity_bytes"] = host.capacity->count;
  object["verdict"] = name_of(host.verdict);
  return object;
}

Json provenance_array(const std::vector<Origin>& origins) {
  Json all = Json::array();
  for (const Origin& origin : origins)
    all.push_back({{"quantity", origin.quantity}, {"kind", name_of(origin.kind)}, {"source", origin.source}});
  return all;
}

Json releases_array(const std::vector<Releases::Entry>& releases) {
  Json all = Json::array();
  for (const Releases::Entry& entry : releases)
    all.push_back({{"package", name_of(entry.package)},
                   {"release", entry.release.text()},
                   {"origin", name_of(entry.origin)},
                   {"why", entry.why}});
  return all;
}

}  // namespace

std::string to_json(const Report& report, const std::vector<SettledKey>& settings) {
  Json object = {
      {"schema", "plimsoll/estimate/1"},
      {"verdict", name_of(report.verdict)},
      {"model", {{"name", report.model_name}, {"parameters", report.parameters}, {"active_parameters", report.active_parameters}}},
      {"strategy", strategy_object(settings)},
      {"ranks", ranks_array(report)},
      {"memory", memory_object(report.worst_rank().memory)},
      {"time", time_object(report.time)},
      {"flops", flops_object(report.flops)},
      {"provenance", provenance_array(report.provenance)},
      {"releases", releases_array(report.releases)},
      {"assumptions", report.assumptions},
      {"unread_keys", report.unread_keys},
      {"notes", report.notes},
  };
  if (report.host.most() > Bytes(0)) object["host"] = host_object(report.host);
  return json_text(object);
}

std::string to_json(const Error& error) {
  constexpr const char* kCodes[] = {"bad_input", "refused", "internal"};
  return json_text({{"schema", "plimsoll/error/1"},
                    {"error",
                     {{"code", kCodes[static_cast<int>(error.code())]},
                      {"message", error.message()},
                      {"where", error.where()},
                      {"hint", error.hint()}}}});
}

}  // namespace plimsoll

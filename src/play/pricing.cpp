// What a run's work and its host are priced by.
#include <algorithm>
#include <map>
#include <string>

#include "hardware/read_values.hpp"
#include "play/host_slowdown.hpp"
#include "plimsoll/play.hpp"
#include "plimsoll/power_limit.hpp"
#include "units/json_reader.hpp"

namespace plimsoll {
namespace {

/// What a pace names, over `pace`: another's, or nothing, where work that is not named is part of what is.
HostPace read_pace(const JsonValue& object, HostPace pace) {
  const auto set = [&](std::string_view key, Seconds& value) {
    if (const auto found = object.find(std::string(key))) value = hardware::read_sourced(*found, hardware::seconds_value).value;
  };
  for (std::size_t i = 0; i < kHostWorks; ++i) set(name_of(static_cast<HostWork>(i)), pace.work[i]);
  set("launch", pace.launch);
  set("wakes", pace.wakes);
  return pace;
}

struct NamedPace {
  std::string framework;
  HostPace pace;
};

std::vector<NamedPace> read_paces() {
  const JsonDocument document = hardware::shipped_document("hardware/hosts.json");
  std::vector<NamedPace> paces;
  for (const JsonValue& row : document.root()["paces"].elements()) {
    const bool like_all = row.has("like");  // "all", the first
    paces.push_back({row["framework"].text(), read_pace(row, like_all ? paces.front().pace : HostPace{})});
  }
  return paces;
}

const HostPace& pace_of(std::string_view framework) {
  static const std::vector<NamedPace> paces = read_paces();
  for (const NamedPace& each : paces)
    if (each.framework == framework) return each.pace;
  return paces.front().pace;  // "all"
}

/// hardware/hosts.json, "processors": how much longer a host beside those devices takes than the one whose pace is given.
double slowdown_beside(const std::string& accelerator) {
  static const std::map<std::string, double> slowdowns = [] {
    const JsonDocument document = hardware::shipped_document("hardware/hosts.json");
    std::map<std::string, double> found;
    for (const JsonValue& processor : document.root()["processors"].elements())
      for (const JsonValue& device : processor["accelerators"].elements())
        found[hardware::device_value(device)] = hardware::read_sourced(processor["slowdown"], hardware::pace_value).value;
    return found;
  }();
  const auto at = slowdowns.find(accelerator);
  return at == slowdowns.end() ? 1 : at->second;
}

/// hardware/hosts.json, "fleet": half the range of products' rates among the devices of a run.
struct FleetSpread {
  double usual = 0;
  std::map<std::string, double> of_family;
};

FleetSpread read_spread() {
  const JsonDocument document = hardware::shipped_document("hardware/hosts.json");
  const JsonValue fleet = document.root()["fleet"], families = fleet["spread_of_family"];
  const auto share = [](const JsonValue& value) { return hardware::read_sourced(value, hardware::positive_share_value).value; };
  FleetSpread spread{share(fleet["spread"]), {}};
  for (const std::string& family : families.keys()) spread.of_family[family] = share(families[family]);
  return spread;
}

/// Devices of one kind differ by what their silicon draws at a clock, and all ranks of a step go at the pace of the slowest. The slowest of
/// n rates that are even between 1 ± spread is expected at spread · (n − 1) / (n + 1) behind the middle.
double pace_of_slowest(std::int64_t devices, const std::string& family) {
  static const FleetSpread spread = read_spread();
  const auto own = spread.of_family.find(family);
  const double n = static_cast<double>(devices);
  return 1 + (own == spread.of_family.end() ? spread.usual : own->second) * (n - 1) / (n + 1);
}

}  // namespace

void slow_down(HostPace& host, double slowdown) {
  for (std::size_t i = 0; i < kHostWorks; ++i)
    if (static_cast<HostWork>(i) != HostWork::memory_traffic) host.work[i] *= slowdown;
  host.launch *= slowdown;
  host.wakes *= slowdown;
}

Pricing pricing_of(const Cluster& cluster, const std::array<GroupShape, kGroups>& groups, std::string_view framework) {
  Pricing pricing;
  pricing.cluster = cluster;
  pricing.groups = groups;
  pricing.pace = pace_of_slowest(cluster.gpus(), cluster.accelerator.family);
  pricing.gap = kernel_gap(cluster.accelerator);
  const Contention& contention = cluster.node.collectives.contention;
  if (contention.memory_bound.value > 0) {
    const double units = cluster.accelerator.compute_units;
    pricing.product_slowdown = units / std::max(1.0, units - cluster.node.collectives.channels);
    pricing.second_wave = cluster.accelerator.gemm.second_wave.value;
    pricing.memory_slowdown = contention.memory_bound.value;
    pricing.communication_slowdown = contention.communication.value;
  }
  pricing.host = pace_of(framework);
  slow_down(pricing.host, slowdown_beside(std::string(board_of(cluster.accelerator.name))));
  if (cluster.node.host_memory_bandwidth.value.value > 0)
    pricing.host.work[static_cast<std::size_t>(HostWork::memory_traffic)] =
        Seconds(cluster.gpus_per_node / cluster.node.host_memory_bandwidth.value.value);
  return pricing;
}

}  // namespace plimsoll

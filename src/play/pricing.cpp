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

/// hardware/hosts.json.
struct Hosts {
  std::vector<NamedPace> paces;             ///< the first of "all"
  std::map<std::string, double> slowdowns;  ///< "processors": by the devices beside them, how much longer such a host takes than the one whose pace is given
  BytesPerSecond rank_bandwidth{};          ///< of an optimizer on the host beside other ranks'
  double usual_spread = 0;                  ///< "fleet": half the range of products' rates among the devices of a run
  std::map<std::string, double> spread_of_family;
};

Hosts read_hosts() {
  const JsonDocument document = hardware::shipped_document("hardware/hosts.json");
  Hosts hosts;
  for (const JsonValue& row : document.root()["paces"].elements()) {
    const bool like_all = row.has("like");  // "all"
    hosts.paces.push_back({row["framework"].text(), read_pace(row, like_all ? hosts.paces.front().pace : HostPace{})});
  }
  for (const JsonValue& processor : document.root()["processors"].elements())
    for (const JsonValue& device : processor["accelerators"].elements())
      hosts.slowdowns[hardware::device_value(device)] = hardware::read_sourced(processor["slowdown"], hardware::pace_value).value;
  hosts.rank_bandwidth = hardware::read_sourced(document.root()["rank_bandwidth"], hardware::bandwidth_value).value;
  const JsonValue fleet = document.root()["fleet"], families = fleet["spread_of_family"];
  const auto share = [](const JsonValue& value) { return hardware::read_sourced(value, hardware::positive_share_value).value; };
  hosts.usual_spread = share(fleet["spread"]);
  for (const std::string& family : families.keys()) hosts.spread_of_family[family] = share(families[family]);
  return hosts;
}

const Hosts& hosts() {
  static const Hosts read = read_hosts();
  return read;
}

const HostPace& pace_of(std::string_view framework) {
  for (const NamedPace& each : hosts().paces)
    if (each.framework == framework) return each.pace;
  return hosts().paces.front().pace;
}

double slowdown_beside(const std::string& accelerator) {
  const auto at = hosts().slowdowns.find(accelerator);
  return at == hosts().slowdowns.end() ? 1 : at->second;
}

/// Devices of one kind differ by what their silicon draws at a clock, and all ranks of a step go at the pace of the slowest. The slowest of
/// n rates that are even between 1 ± spread is expected at spread · (n − 1) / (n + 1) behind the middle.
double pace_of_slowest(std::int64_t devices, const std::string& family) {
  const auto own = hosts().spread_of_family.find(family);
  const double n = static_cast<double>(devices);
  return 1 + (own == hosts().spread_of_family.end() ? hosts().usual_spread : own->second) * (n - 1) / (n + 1);
}

/// Bytes that one rank's optimizer on the host moves: its share of the memory's bandwidth, and beside other ranks no more than was seen of one.
BytesPerSecond host_traffic_of_rank(const Cluster& cluster) {
  const double share = cluster.node.host_memory_bandwidth.value.value / cluster.gpus_per_node;
  return BytesPerSecond(cluster.gpus_per_node > 1 ? std::min(share, hosts().rank_bandwidth.value) : share);
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
    pricing.host.work[static_cast<std::size_t>(HostWork::memory_traffic)] = Seconds(1 / host_traffic_of_rank(cluster).value);
  return pricing;
}

}  // namespace plimsoll

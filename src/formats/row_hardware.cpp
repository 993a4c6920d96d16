#include <cstdint>
#include <numeric>
#include <utility>

#include "formats/row_reader.hpp"
#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/power_limit.hpp"

namespace plimsoll::formats {
namespace {

/// The network per GPU that the row states, in place of the usual one of such nodes.
void set_network(Cluster& cluster, const JsonValue& gbit) {
  plimsoll::Node& node = cluster.node;
  const double per_gpu = gbit.number(0.1, 1e5) * 1e9 / 8;
  if (node.nics < 1) node.nics = node.gpus;
  const double share = node.nic.bandwidth.value.value > 0 ? node.nic.achieved.value.value / node.nic.bandwidth.value.value : 1;
  const double per_nic = per_gpu * cluster.gpus_per_node / node.nics;
  node.nic.bandwidth = {BytesPerSecond(per_nic), Provenance::measured, "the measured row"};
  node.nic.achieved = {BytesPerSecond(per_nic * (share > 0 ? share : 1)), Provenance::derived, "the measured row"};
}

/// `memory_bytes` and `context_bytes` stand for the card's capacity and for everything outside the allocator.
void set_memory(Cluster& cluster, const JsonValue& hardware) {
  Accelerator& device = cluster.accelerator;
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  if (hardware.has("memory_bytes"))
    device.memory_usable = {Bytes(hardware["memory_bytes"].integer(1, kMost)), Provenance::measured, "the measured row"};
  if (!hardware.has("context_bytes")) return;
  device.overheads.context = {Bytes(hardware["context_bytes"].integer(0, kMost)), Provenance::measured, "the measured row"};
  device.overheads.first_communicator = device.overheads.further_communicator = {Bytes(0), Provenance::measured, "the measured row"};
}

}  // namespace

bool is_without_device(const std::string& gpu) { return gpu.rfind("stub-sm", 0) == 0; }

Cluster read_row_cluster(const JsonValue& hardware, RowCaches& caches, std::vector<std::string>& unread) {
  if (!hardware.is_object()) hardware.expected("an object");
  check_keys(
      hardware,
      {"gpu", "gpus", "gpus_per_node", "memory_bytes", "context_bytes", "inter_node", "inter_node_gbit_per_gpu", "intra_node", "note",
       "power_limit", "power_limited"},
      unread, "hardware.");
  constexpr std::int64_t kMostGpus = 1 << 24;
  const std::string gpu = hardware["gpu"].text();
  if (!hardware.has("gpus")) fail("hardware.gpus is absent", hardware.where());
  const std::int64_t gpus = hardware["gpus"].integer(1, kMostGpus);
  int per_node = hardware.has("gpus_per_node") ? static_cast<int>(hardware["gpus_per_node"].integer(1, 1 << 16)) : 0;
  if (per_node > 0 && gpus > per_node)
    per_node = static_cast<int>(std::gcd(gpus, std::int64_t{per_node}));  // nodes used in part, all alike
  Cluster cluster = caches.cluster(gpu, gpus, per_node, hardware["gpu"].where());
  // A device-less runtime without a stated capacity has no limit.
  if (is_without_device(gpu) && !hardware.has("memory_bytes"))
    cluster.accelerator.memory_usable = {Bytes(std::int64_t{1} << 46), Provenance::assumed, "no capacity is stated"};
  set_memory(cluster, hardware);
  if (hardware.has("power_limit"))
    cluster = held_to(std::move(cluster), hardware::watts_value(hardware["power_limit"]), hardware["power_limit"].where());
  if (hardware.has("inter_node") && cluster.nodes > 1) hardware::set_network(cluster.node.collectives, hardware["inter_node"].text());
  if (hardware.has("inter_node_gbit_per_gpu") && cluster.nodes > 1) set_network(cluster, hardware["inter_node_gbit_per_gpu"]);
  return cluster;
}

}  // namespace plimsoll::formats

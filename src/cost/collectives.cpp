// What a collective costs on a cluster: the measured curve of exactly this group shape where one is published, otherwise the library's
// own model (NCCL), or two calibrated protocols over the links that the group owns (RCCL on a mesh).
#include <algorithm>
#include <cmath>

#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

/// GPU-side cost of a point-to-point transfer before the first byte (NCCL's Simple base).
constexpr Seconds kPairLatency{10e-6};
/// Host-driven copies pay a driver call.
constexpr Seconds kCopyLatency{10e-6};

/// Log-log interpolation; below the first point its time, above the last its bandwidth.
Seconds on_curve(const CollectiveCurve& curve, Bytes buffer) {
  const auto& points = curve.points;
  const double bytes = static_cast<double>(buffer.count);
  if (buffer <= points.front().bytes) return points.front().time;
  if (buffer >= points.back().bytes) return points.back().time * (bytes / static_cast<double>(points.back().bytes.count));
  const auto above = std::find_if(points.begin(), points.end(), [&](const CollectivePoint& point) { return buffer < point.bytes; });
  const auto below = above - 1;
  const double from = std::log(static_cast<double>(below->bytes.count)), to = std::log(static_cast<double>(above->bytes.count));
  const double at = (std::log(bytes) - from) / (to - from);
  return Seconds(std::exp(std::log(below->time.value) * (1 - at) + std::log(above->time.value) * at));
}

const CollectiveCurve* curve_of(const GroupShape& group, const CollectiveLibrary& library) {
  for (const auto& curve : library.all_reduce)
    if (curve.gpus == group.size && curve.nodes == group.nodes && group.uniform) return &curve;
  return nullptr;
}

double bandwidth_of(const GroupShape& group, const CollectiveLibrary& library) {
  return group.per_node > 1 ? std::min(group.ring.value, library.ring.value.value) : group.ring.value;
}

/// RCCL inside a node: a low-latency protocol at a share of the bandwidth, and a pipelined one at all of it after a longer start.
Seconds two_protocols(CollectiveKind kind, Bytes buffer, const GroupShape& group, const CollectiveLibrary& library) {
  const double passes = kind == CollectiveKind::all_reduce ? 2 : 1;
  const Seconds transfer(bytes_sent(kind, buffer, group.size) / bandwidth_of(group, library));
  const Seconds low = library.launch.value + transfer / library.ll_share.value;
  const Seconds pipelined = library.pipeline.value * (passes / 2) + transfer;
  return low < pipelined ? low : pipelined;
}

Seconds all_to_all(Bytes buffer, const GroupShape& group, const CollectiveLibrary& library) {
  const double cap = library.all_to_all.value.value;
  double bandwidth = group.all_to_all.value;
  if (group.nodes == 1 && cap > 0) bandwidth = std::min(bandwidth, cap);
  const Seconds latency = kPairLatency + (group.nodes > 1 ? group.inter_latency : group.intra_latency);
  return latency + Seconds(bytes_sent(CollectiveKind::all_to_all, buffer, group.size) / bandwidth);
}

bool has_two_protocols(const CollectiveLibrary& library) { return library.pipeline.value.value > 0; }

Seconds ring_like(CollectiveKind kind, Bytes buffer, const GroupShape& group, const CollectiveLibrary& library) {
  if (kind == CollectiveKind::all_reduce)
    if (const auto* curve = curve_of(group, library)) return on_curve(*curve, buffer);
  if (group.nodes == 1 && has_two_protocols(library)) return two_protocols(kind, buffer, group, library);
  return best_protocol(kind, buffer, group, library).time(buffer);
}

}  // namespace

Seconds price(const Collective& collective, const GroupShape& group, const Cluster& cluster) {
  if (group.size < 2 || collective.bytes <= 0) return Seconds();
  const Bytes buffer(collective.bytes);
  const CollectiveLibrary& library = cluster.node.collectives;
  const Seconds hop = group.nodes > 1 ? group.inter_latency : group.intra_latency;
  switch (collective.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      return ring_like(collective.kind, buffer, group, library);
    case CollectiveKind::all_to_all:
      return all_to_all(buffer, group, library);
    case CollectiveKind::broadcast:
      return kPairLatency + ring_broadcast(buffer, group.size, BytesPerSecond(bandwidth_of(group, library)), hop);
    case CollectiveKind::send:
    case CollectiveKind::receive:
      return kPairLatency + hop + buffer / group.pair;
  }
  return Seconds();
}

Seconds price(const Copy& copy, const Cluster& cluster) {
  if (copy.bytes <= 0) return Seconds();
  const Accelerator& device = cluster.accelerator;
  if (copy.direction == Copy::Direction::set) return memory_bound_time(cluster.accelerator, Bytes(copy.bytes));
  if (copy.direction == Copy::Direction::device_to_device) return memory_bound_time(device, Bytes(2 * copy.bytes));
  double bandwidth = cluster.node.host_link.achieved.value.value;
  if (const int sharing = cluster.node.gpus_per_pcie_switch; sharing > 0)
    bandwidth = std::min(bandwidth, cluster.node.uplink.achieved.value.value / std::min(sharing, cluster.gpus_per_node));
  return kCopyLatency + Bytes(copy.bytes) / BytesPerSecond(bandwidth);
}

Seconds host_optimizer_time(Bytes traffic, const Cluster& cluster, int ranks_per_node) {
  return traffic / cluster.node.host_memory_bandwidth.value * static_cast<double>(ranks_per_node);
}

}  // namespace plimsoll

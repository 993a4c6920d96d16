// What a collective costs on a cluster: the cheapest algorithm and protocol of the library's own model (NCCL), or two calibrated protocols
// over the links that the group owns (RCCL on a mesh), each corrected by the measured curve of that algorithm where one is published.
#include <algorithm>
#include <limits>
#include <optional>

#include "cost/measured_collectives.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

/// Host-driven copies pay a driver call.
constexpr Seconds kCopyLatency{10e-6};
/// Share of a link that the low-latency protocol reaches: half of its bytes are flags.
constexpr double kLlShare = 0.5;

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

bool has_two_protocols(const GroupShape& group, const CollectiveLibrary& library) {
  return group.nodes == 1 && library.pipeline.value.value > 0;
}

/// The cheapest protocol of one algorithm; infinite where the group cannot run it.
Seconds modelled(const std::string& algorithm, CollectiveKind kind, Bytes buffer, const GroupShape& group,
                 const CollectiveLibrary& library) {
  if (has_two_protocols(group, library)) return two_protocols(kind, buffer, group, library);
  Seconds best(std::numeric_limits<double>::infinity());
  for (const ProtocolCost& cost : protocol_costs_at(kind, buffer, group, library))
    if (cost.algorithm == algorithm && cost.time(buffer) < best) best = cost.time(buffer);
  return best;
}

Seconds ring_like(CollectiveKind kind, Bytes buffer, const GroupShape& group, const CollectiveLibrary& library) {
  Seconds best(std::numeric_limits<double>::infinity());
  for (const char* algorithm : {"ring", "tree", "nvls", "nvls_tree", "pat"}) {
    const Seconds model = modelled(algorithm, kind, buffer, group, library);
    if (model.value == std::numeric_limits<double>::infinity()) continue;
    const double factor = cost::measured_over_modelled(
        algorithm, kind, buffer, group, library,
        [&](CollectiveKind other, Bytes size, const GroupShape& shape) { return modelled(algorithm, other, size, shape, library); });
    if (model * factor < best) best = model * factor;
    if (has_two_protocols(group, library)) break;  // they stand for all algorithms
  }
  return best;
}

/// A send to one rank: the library's low-latency or its pipelined protocol, over the pair's link.
Seconds pair_transfer(Bytes buffer, const GroupShape& group, const CollectiveLibrary& library) {
  const auto protocol = [&](const ProtocolLatency& latency, double share) {
    return latency.base_ring + (group.nodes > 1 ? latency.network_ring : latency.intra_ring) + buffer / (group.pair * share);
  };
  const Seconds pipelined = protocol(library.simple, 1);
  if (library.ll.base_ring.value <= 0) return pipelined;
  const Seconds low = protocol(library.ll, kLlShare);
  return low < pipelined ? low : pipelined;
}

/// Pairwise exchange: every rank sends to all others at once, one message after the other over its link or NIC.
Seconds all_to_all(Bytes buffer, const GroupShape& group, const CollectiveLibrary& library) {
  const double cap = library.all_to_all.value.value, share = library.network_all_to_all.value;
  double bandwidth = group.all_to_all.value;
  if (group.nodes == 1 && cap > 0) bandwidth = std::min(bandwidth, cap);
  if (group.nodes > 1 && share > 0) bandwidth *= share;
  const double within = static_cast<double>(group.per_node - 1), across = static_cast<double>(group.size - group.per_node);
  const Seconds messages = within * group.intra_latency + across * group.inter_latency;
  return library.simple.base_ring + messages + Seconds(bytes_sent(CollectiveKind::all_to_all, buffer, group.size) / bandwidth);
}

/// What the library's model says of a group of several ranks, corrected by the curves of its algorithms.
Seconds modelled_time(CollectiveKind kind, Bytes buffer, const GroupShape& group, const CollectiveLibrary& library) {
  switch (kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
      return ring_like(kind, buffer, group, library);
    case CollectiveKind::broadcast:
      return best_protocol(kind, buffer, group, library).time(buffer);
    case CollectiveKind::all_to_all:
      return all_to_all(buffer, group, library);
    case CollectiveKind::send:
    case CollectiveKind::receive:
      return pair_transfer(buffer, group, library);
  }
  refuse("a collective of kind " + std::to_string(static_cast<int>(kind)) + " has no price");
}

}  // namespace

Seconds price(const Collective& collective, const GroupShape& group, const Cluster& cluster) {
  if (group.size < 2 || collective.bytes <= 0) return Seconds();
  const Bytes buffer(collective.bytes);
  const CollectiveLibrary& library = cluster.node.collectives;
  const auto modelled = [&](CollectiveKind kind, Bytes size, const GroupShape& shape) { return modelled_time(kind, size, shape, library); };
  const std::optional<Seconds> measured = cost::measured_time(collective.kind, buffer, group, library, modelled);
  return measured ? *measured : modelled(collective.kind, buffer, group);
}

Seconds price(const Copy& copy, const Cluster& cluster) {
  if (copy.bytes <= 0) return Seconds();
  const Accelerator& device = cluster.accelerator;
  if (copy.direction == Copy::Direction::set) return fill_time(device, Bytes(copy.bytes), DType::fp32);
  if (copy.direction == Copy::Direction::device_to_device) return device_copy_time(device, Bytes(copy.bytes));
  double bandwidth = cluster.node.host_link.achieved.value.value;
  if (const int sharing = cluster.node.gpus_per_pcie_switch; sharing > 0)
    bandwidth = std::min(bandwidth, cluster.node.uplink.achieved.value.value / std::min(sharing, cluster.gpus_per_node));
  return kCopyLatency + Bytes(copy.bytes) / BytesPerSecond(bandwidth);
}

}  // namespace plimsoll

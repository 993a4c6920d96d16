// NCCL's own cost model (src/graph/tuning.cc): latency and bandwidth of every (algorithm, protocol), of which the library takes the
// cheapest. Times in seconds, bandwidths in bytes/s; `bus` is bus bandwidth, the model's result is algorithm bandwidth.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

constexpr double kLl128Share = 0.92;
constexpr double kLlShare = 0.5;
constexpr double kTreeShare = 0.92;
constexpr double kLlTreeDivisor = 3.8;
constexpr double kMultiNodeRingSimple = 1.4;
constexpr double kSimpleNetworkOverhead = 3;
constexpr Seconds kNvlsLatency{25e-6};

/// Size-dependent correction of trees, by log2(D / 64 B); 256 MB and more: the last.
using Correction = std::array<double, 24>;
constexpr Correction kTreeLl{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1};
constexpr Correction kTreeLl128{1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1};
constexpr Correction kTreeSimple{.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9};

double tree_correction(const std::string& protocol, Bytes buffer) {
  const Correction& table = protocol == "LL" ? kTreeLl : protocol == "LL128" ? kTreeLl128 : kTreeSimple;
  const double size = std::max(0.0, std::log2(static_cast<double>(std::max<std::int64_t>(buffer.count, 1)) / 64));
  return table[std::min(static_cast<std::size_t>(size), table.size() - 1)];
}

std::size_t node_class(const GroupShape& group) { return group.nodes == 1 ? 0 : group.nodes == 2 ? 1 : 2; }

/// One group on one node's constants.
class Model {
 public:
  Model(CollectiveKind kind, const GroupShape& group, const CollectiveLibrary& library)
      : group_(group), library_(library), reduces_(kind == CollectiveKind::all_reduce) {
    bandwidth_ = group.per_node > 1 ? std::min(group.ring.value, library.ring.value.value) : group.ring.value;
  }

  std::vector<ProtocolCost> costs() const {
    std::vector<ProtocolCost> list;
    const double ll_max = library_.ll_max[node_class(group_)].value.value;
    const double ll128_cap = library_.channels * library_.ll128_per_channel.value.value;
    if (ll_max > 0) list.push_back(ring("LL", library_.ll, std::min(ll_max, kLlShare * bandwidth_)));
    if (ll128_cap > 0) list.push_back(ring("LL128", library_.ll128, std::min(kLl128Share * bandwidth_, ll128_cap)));
    list.push_back(ring("Simple", library_.simple, bandwidth_));
    if (!reduces_) return list;
    const double tree_bus = kTreeShare * bandwidth_;
    const double tree_cap = library_.channels * library_.tree_per_channel[node_class(group_)].value.value;
    if (ll_max > 0) list.push_back(tree("LL", library_.ll, std::min(tree_bus / kLlTreeDivisor, ll_max)));
    if (ll128_cap > 0)
      list.push_back(tree("LL128", library_.ll128, std::min(tree_bus * (group_.nodes == 1 ? 7.0 / 9 : 120.0 / 128), ll128_cap)));
    if (tree_cap > 0) list.push_back(tree("Simple", library_.simple, std::min(tree_bus, tree_cap)));
    if (library_.nvls.value.value > 0 && group_.nodes == 1)
      list.push_back({"nvls", "Simple", kNvlsLatency, algorithm(library_.nvls.value.value)});
    return list;
  }

 private:
  double ranks() const { return static_cast<double>(group_.size); }
  double steps() const { return (reduces_ ? 2 : 1) * (ranks() - 1); }
  BytesPerSecond algorithm(double bus) const { return BytesPerSecond(bus * ranks() / steps()); }

  ProtocolCost ring(const char* protocol, const ProtocolLatency& latency, double bus) const {
    const double between = group_.nodes == 1 ? 0 : (reduces_ ? 2 : 1) * static_cast<double>(group_.nodes - 1);
    const double overhead = library_.network_overhead.value * (std::string(protocol) == "Simple" ? kSimpleNetworkOverhead : 1);
    const double intra = group_.nodes == 1 ? latency.intra_ring.value : std::max(latency.intra_ring.value, overhead);
    const double total = latency.base_ring.value + (steps() - between) * intra + between * latency.network_ring.value;
    return {"ring", protocol, Seconds(total), algorithm(bus)};
  }

  ProtocolCost tree(const char* protocol, const ProtocolLatency& latency, double bus) const {
    const double depth = std::floor(std::log2(static_cast<double>(group_.nodes)));
    const double way = static_cast<double>(group_.per_node - 1) * latency.intra_tree.value + depth * latency.network_tree.value;
    return {"tree", protocol, latency.base_tree + Seconds(2 * way), BytesPerSecond(bus / 2)};
  }

  const GroupShape& group_;
  const CollectiveLibrary& library_;
  bool reduces_;
  double bandwidth_ = 0;
};

}  // namespace

std::vector<ProtocolCost> protocol_costs(CollectiveKind kind, const GroupShape& group, const CollectiveLibrary& library) {
  if (group.size < 2) fail("protocol_costs: a group of one rank does not communicate");
  return Model(kind, group, library).costs();
}

ProtocolCost best_protocol(CollectiveKind kind, Bytes buffer, const GroupShape& group, const CollectiveLibrary& library) {
  ProtocolCost best{"", "", Seconds(std::numeric_limits<double>::infinity()), BytesPerSecond(1)};
  for (ProtocolCost cost : protocol_costs(kind, group, library)) {
    if (cost.algorithm == "tree") cost.bandwidth *= tree_correction(cost.protocol, buffer);
    const bool large = buffer.count / std::max<std::int64_t>(1, group.size * library.channels) >= 64;
    if (cost.algorithm == "ring" && cost.protocol == "Simple" && group.nodes > 1 && kind == CollectiveKind::all_reduce && large)
      cost.latency *= kMultiNodeRingSimple;
    if (cost.time(buffer) < best.time(buffer)) best = cost;
  }
  return best;
}

}  // namespace plimsoll

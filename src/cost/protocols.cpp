// NCCL's own cost model (src/graph/tuning.cc): latency and bandwidth of every (algorithm, protocol), of which the library takes the
// cheapest. Times in seconds, bandwidths in bytes/s; `bus` is bus bandwidth, the model's result is algorithm bandwidth. What depends on the
// architecture stands in the cluster's file; what follows is the library's for all of them (2.28; older releases differ by latencies alone).
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
constexpr Seconds kNvlsTreeNetwork{20.9e-6};
/// In-switch reduction is set up for more than two GPUs of a node.
constexpr std::int64_t kFewestForNvls = 3;
constexpr double kPatShare = 0.75;
constexpr Seconds kPatBase{8e-6}, kPatPerRank{2.8e-6};
constexpr double kPatNetworkDivisor = 3.5;

/// Size-dependent correction of trees, by log2(D / 64 B): 64 B to 256 MB.
using Correction = std::array<double, 23>;
constexpr Correction kTreeLl{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1};
constexpr Correction kTreeLl128{1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1};
constexpr Correction kTreeSimple{.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9};

/// Between two of the table's sizes what lies between them: the library's own steps are of its choice, and what a tree takes has none.
double tree_correction(const std::string& protocol, Bytes buffer) {
  if (buffer.count < 64) return 1;
  const Correction& table = protocol == "LL" ? kTreeLl : protocol == "LL128" ? kTreeLl128 : kTreeSimple;
  const double size = std::log2(static_cast<double>(buffer.count) / 64), step = std::floor(size);
  const auto at = [&](double index) { return index < static_cast<double>(table.size()) ? table[static_cast<std::size_t>(index)] : 1.0; };
  return at(step) + (size - step) * (at(step + 1) - at(step));
}

std::size_t node_class(const GroupShape& group) { return group.nodes == 1 ? 0 : group.nodes == 2 ? 1 : 2; }

/// One group on one node's constants.
class Model {
 public:
  Model(CollectiveKind kind, const GroupShape& group, const CollectiveLibrary& library)
      : kind_(kind), group_(group), library_(library), reduces_(kind == CollectiveKind::all_reduce) {
    bandwidth_ = group.per_node > 1 ? std::min(group.ring.value, library.ring.value.value) : group.ring.value;
    depth_ = std::floor(std::log2(static_cast<double>(group.nodes)));
  }

  std::vector<ProtocolCost> costs() {
    add_rings();
    if (kind_ == CollectiveKind::broadcast) return std::move(list_);
    const bool trees = group_.nodes == 1 || per_channel(library_.tree_per_channel) > 0;
    const bool in_switch = library_.nvls.value.value > 0 && group_.per_node >= kFewestForNvls && trees;
    // The library takes what its tables say is faster, in-switch reduction, even where the network lets it reach less than they say.
    const bool instead = in_switch && group_.nodes > 1 && library_.nvls_tree.value > 0;
    if (reduces_ && !instead) add_trees();
    if (reduces_ && in_switch) add_nvls();
    if (!reduces_ && library_.pat && group_.nodes > 1 && group_.per_node == 1) add_pat();
    return std::move(list_);
  }

 private:
  double ranks() const { return static_cast<double>(group_.size); }
  /// Steps of a ring: a broadcast passes every rank once, and counts its bytes once.
  double steps() const { return kind_ == CollectiveKind::broadcast ? ranks() : (reduces_ ? 2 : 1) * (ranks() - 1); }
  BytesPerSecond algorithm(double bus) const { return BytesPerSecond(bus * ranks() / steps()); }
  double per_channel(const Sourced<BytesPerSecond> (&table)[3]) const { return library_.channels * table[node_class(group_)].value.value; }

  void add_rings() {
    const double ll_max = library_.ll_max[node_class(group_)].value.value, ll128_cap = per_channel(library_.ll128_per_channel);
    if (ll_max > 0) list_.push_back(ring("LL", library_.ll, std::min(ll_max, kLlShare * bandwidth_)));
    if (ll128_cap > 0) list_.push_back(ring("LL128", library_.ll128, std::min(kLl128Share * bandwidth_, ll128_cap)));
    list_.push_back(ring("Simple", library_.simple, bandwidth_));
  }

  void add_trees() {
    const double cap = per_channel(library_.tree_per_channel), ll128_cap = per_channel(library_.ll128_tree_per_channel);
    const double ll_max = library_.ll_max[node_class(group_)].value.value;
    if (cap <= 0) return;
    const double bus = std::min(kTreeShare * bandwidth_, cap);
    if (ll_max > 0) list_.push_back(tree("LL", library_.ll, std::min(bus / kLlTreeDivisor, ll_max)));
    if (ll128_cap > 0) list_.push_back(tree("LL128", library_.ll128, std::min(bus * (group_.nodes == 1 ? 7.0 / 9 : 120.0 / 128), ll128_cap)));
    list_.push_back(tree("Simple", library_.simple, bus));
  }

  /// The switches reduce; across nodes the shares of a node's GPUs go up and down a tree, whose two ends alone use their NICs both ways.
  void add_nvls() {
    const double inside = library_.nvls.value.value;
    if (group_.nodes == 1) return list_.push_back({"nvls", "Simple", kNvlsLatency, algorithm(inside)});
    const double share = library_.nvls_tree.value > 0 ? library_.nvls_tree.value : 1;
    const double nics = share * group_.inter.value * static_cast<double>(group_.per_node) * (group_.nodes == 2 ? 2 : 1);
    list_.push_back({"nvls_tree", "Simple", kNvlsLatency + 2 * depth_ * (kNvlsTreeNetwork + library_.tree_hop), algorithm(std::min(inside, nics))});
  }

  void add_pat() {
    const Seconds hops(depth_ * library_.simple.network_tree.value / kPatNetworkDivisor + ranks() * kPatPerRank.value);
    list_.push_back({"pat", "Simple", kPatBase + hops, BytesPerSecond(kPatShare * bandwidth_)});
  }

  /// With one GPU per node nothing hides the network's latency: the trees' is taken.
  ProtocolCost ring(const char* protocol, const ProtocolLatency& latency, double bus) const {
    const double passes = reduces_ ? 2 : 1, between = passes * static_cast<double>(group_.nodes - 1);
    const double network = group_.per_node == 1 ? latency.network_tree.value : latency.network_ring.value;
    const double overhead = library_.network_overhead.value * (std::string(protocol) == "Simple" ? kSimpleNetworkOverhead : 1);
    const double intra = group_.nodes == 1 ? latency.intra_ring.value : std::max(latency.intra_ring.value, overhead);
    const bool pipelined = kind_ == CollectiveKind::broadcast && group_.nodes == 1;  // the same ring in every channel
    const double hops = pipelined ? intra : (passes * (ranks() - 1) - between) * intra + between * network;
    return {"ring", protocol, latency.base_ring + Seconds(hops), algorithm(bus)};
  }

  ProtocolCost tree(const char* protocol, const ProtocolLatency& latency, double bus) const {
    const double level = (latency.network_tree + library_.tree_hop).value;
    const double way = static_cast<double>(group_.per_node - 1) * latency.intra_tree.value + depth_ * level;
    return {"tree", protocol, latency.base_tree + Seconds(2 * way), BytesPerSecond(bus / 2)};
  }

  CollectiveKind kind_;
  const GroupShape& group_;
  const CollectiveLibrary& library_;
  bool reduces_;
  double bandwidth_ = 0, depth_ = 0;
  std::vector<ProtocolCost> list_;
};

}  // namespace

std::vector<ProtocolCost> protocol_costs(CollectiveKind kind, const GroupShape& group, const CollectiveLibrary& library) {
  if (group.size < 2) fail("protocol_costs: a group of one rank does not communicate");
  if (kind == CollectiveKind::all_to_all || kind == CollectiveKind::send || kind == CollectiveKind::receive)
    fail("protocol_costs: the cost model has no " + std::string(name_of(kind)));
  return Model(kind, group, library).costs();
}

std::vector<ProtocolCost> protocol_costs_at(CollectiveKind kind, Bytes buffer, const GroupShape& group, const CollectiveLibrary& library) {
  std::vector<ProtocolCost> costs = protocol_costs(kind, group, library);
  for (ProtocolCost& cost : costs) {
    if (cost.algorithm == "tree") cost.bandwidth *= tree_correction(cost.protocol, buffer);
    const bool large = buffer.count / std::max<std::int64_t>(1, group.size * library.channels) >= 64;
    if (cost.algorithm == "ring" && cost.protocol == "Simple" && group.nodes > 1 && kind == CollectiveKind::all_reduce && large)
      cost.latency *= kMultiNodeRingSimple;
  }
  return costs;
}

ProtocolCost best_protocol(CollectiveKind kind, Bytes buffer, const GroupShape& group, const CollectiveLibrary& library) {
  const std::vector<ProtocolCost> costs = protocol_costs_at(kind, buffer, group, library);
  return *std::min_element(costs.begin(), costs.end(),
                           [&](const ProtocolCost& a, const ProtocolCost& b) { return a.time(buffer) < b.time(buffer); });
}

}  // namespace plimsoll

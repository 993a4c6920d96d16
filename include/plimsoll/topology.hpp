/// What bandwidth and latency a group of ranks gets from the cluster. Rank r is GPU r mod g of node r div g (g GPUs used per node).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plimsoll/hardware.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// `size` ranks, `stride` apart: what every parallel dimension of a rank grid is.
struct RankGroup {
  std::int64_t first = 0, size = 1, stride = 1;
};

/// What a group gets. Bandwidths are per rank and per direction.
struct GroupShape {
  std::int64_t size = 1;
  std::int64_t nodes = 1;     ///< k: nodes with a member
  std::int64_t per_node = 1;  ///< q: members on the fullest node
  bool direct = false;        ///< one node, and every two members have a link of their own
  bool uniform = true;        ///< the same number of members on every node

  BytesPerSecond ring;                   ///< ring (and any bus-bandwidth bound) collectives over the whole group
  BytesPerSecond all_to_all;             ///< every rank to every other at once
  BytesPerSecond pair;                   ///< each rank to its successor at once: pipeline send and receive
  BytesPerSecond intra_ring;             ///< ring over the members of one node
  BytesPerSecond inter;                  ///< network bandwidth of one member, shared as `sharers` says
  Seconds intra_latency, inter_latency;  ///< one hop; inter 0 on one node
  std::int64_t sharers = 1;              ///< groups of this layout that use the same NICs at once
};

/// Whether the other ranks of the cluster form groups of the same layout that communicate at the same time (SPMD training).
enum class Siblings : std::uint8_t { all, none };

/// The graph of one node (GPUs, switches, CPUs, NICs) and of the fabric above it. Nodes are alike: only one is built.
class Topology {
 public:
  explicit Topology(const Cluster& cluster);
  ~Topology();
  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;

  /// Throws Error when a rank lies outside the cluster or the group is empty.
  GroupShape group(const RankGroup& group, Siblings siblings = Siblings::all) const;
  /// The same for any set of ranks, in ring order, that communicates alone.
  GroupShape group_bandwidth(const std::vector<std::int64_t>& ranks) const;

  /// Widest route between two ranks, and its latency (0 hops: the same rank).
  Link route(std::int64_t from, std::int64_t to) const;
  /// The node's graph in Graphviz's language, links labelled with what they achieve.
  std::string dot() const;

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace plimsoll

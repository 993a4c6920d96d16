// The graph of one node and what groups of ranks get from it. Nodes are alike, so one node's graph answers for 16,384 GPUs.
//
// Bandwidth of a group inside a node: every hop of its ring (or every pair, for all-to-all) is routed over the graph, and the most
// loaded link decides. Where the members have links of their own, several rings run side by side: by Nash-Williams and Edmonds the sum of
// them is bounded by the minimum cut of the members' graph, which a full mesh of j GPUs reaches with its j − 1 links.
#include "plimsoll/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <boost/graph/stoer_wagner_min_cut.hpp>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

struct Vertex {
  std::string name;
};
struct Edge {
  double latency = 0;     // seconds
  double bandwidth = 0;   // bytes/s, one direction
  std::size_t index = 0;  // in order of adding
};
using NodeGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, Vertex, Edge>;
using VertexId = NodeGraph::vertex_descriptor;
using EdgeId = NodeGraph::edge_descriptor;

/// The links of the node, as a graph: GPUs are the first `gpus` vertices.
class NodeBuilder {
 public:
  NodeBuilder(const Node& node, NodeGraph& graph) : node_(node), graph_(graph) {
    for (int gpu = 0; gpu < node.gpus; ++gpu) add("gpu" + std::to_string(gpu));
    add_gpu_links();
    add_host();
    add_nics();
  }

 private:
  VertexId add(std::string name) { return boost::add_vertex(Vertex{std::move(name)}, graph_); }
  void one_way(VertexId from, VertexId to, const Link& link, int count = 1) {
    boost::add_edge(from, to, Edge{link.latency.value.value, link.achieved.value.value * count, boost::num_edges(graph_)}, graph_);
  }
  void both_ways(VertexId a, VertexId b, const Link& link, int count = 1) {
    one_way(a, b, link, count);
    one_way(b, a, link, count);
  }

  void add_gpu_links() {
    if (node_.fabric == NodeFabric::mesh)
      for (int a = 0; a < node_.gpus; ++a)
        for (int b = a + 1; b < node_.gpus; ++b) both_ways(vertex(a), vertex(b), node_.gpu_link);
    if (node_.fabric == NodeFabric::nvswitch) {
      const VertexId nvswitch = add("nvswitch");
      for (int gpu = 0; gpu < node_.gpus; ++gpu) both_ways(vertex(gpu), nvswitch, node_.gpu_link);
    }
    for (const GpuPair& pair : node_.pairs) both_ways(vertex(pair.first), vertex(pair.second), node_.gpu_link, pair.links);
  }

  /// CPU sockets in a chain; GPUs in even shares under them, behind PCIe switches where the node has them.
  void add_host() {
    std::vector<VertexId> cpus;
    for (int socket = 0; socket < node_.sockets; ++socket) {
      cpus.push_back(add("cpu" + std::to_string(socket)));
      if (socket > 0) both_ways(cpus[cpus.size() - 2], cpus.back(), node_.socket_link);
    }
    const int per_switch = node_.gpus_per_pcie_switch;
    VertexId parent = 0;
    for (int gpu = 0; gpu < node_.gpus; ++gpu) {
      const VertexId cpu = cpus[static_cast<std::size_t>(gpu * node_.sockets / node_.gpus)];
      if (per_switch > 0 && gpu % per_switch == 0) {
        parent = add("pcie" + std::to_string(gpu / per_switch));
        both_ways(parent, cpu, node_.uplink);
      }
      both_ways(vertex(gpu), per_switch > 0 ? parent : cpu, node_.host_link);
    }
  }

  /// GPU → NIC → network only: no traffic inside the node passes a NIC, and the way in is as wide as the way out.
  void add_nics() {
    if (node_.nics == 0) return;
    const VertexId network = add("network");
    std::vector<VertexId> nics;
    for (int nic = 0; nic < node_.nics; ++nic) {
      nics.push_back(add("nic" + std::to_string(nic)));
      one_way(nics.back(), network, node_.nic);
    }
    for (int gpu = 0; gpu < node_.gpus; ++gpu)
      one_way(vertex(gpu), nics[static_cast<std::size_t>(gpu * node_.nics / node_.gpus)], node_.host_link);
  }

  static VertexId vertex(int gpu) { return static_cast<VertexId>(gpu); }

  const Node& node_;
  NodeGraph& graph_;
};

using GpuSet = std::vector<int>;

/// On which nodes the members of a group are.
struct Spread {
  std::int64_t nodes = 0, first = 0, last = 0;  ///< how many, and the outermost
  std::vector<GpuSet> sets;                     ///< which GPUs of a node, each set once; that of the first node first

  void add(GpuSet members) {
    if (std::find(sets.begin(), sets.end(), members) == sets.end()) sets.push_back(std::move(members));
  }
};

/// Which GPUs of a node are of a group whose ranks are less than a node apart.
GpuSet members_on(std::int64_t node, const RankGroup& group, std::int64_t gpus) {
  const std::int64_t before = std::max<std::int64_t>(0, ceil_div(node * gpus - group.first, group.stride));
  const std::int64_t end = std::min((node + 1) * gpus, group.first + group.size * group.stride);
  GpuSet members;
  for (std::int64_t rank = group.first + before * group.stride; rank < end; rank += group.stride)
    members.push_back(static_cast<int>(rank % gpus));
  return members;
}

/// What its members are on a node comes again where stride and node come out even: the first node and the last may hold fewer.
Spread spread_of(const RankGroup& group, std::int64_t gpus) {
  const std::int64_t even = std::lcm(group.stride, gpus);
  Spread spread;
  spread.first = group.first / gpus;
  spread.last = (group.first + (group.size - 1) * group.stride) / gpus;
  if (group.stride >= gpus) {
    spread.nodes = group.size;
    for (std::int64_t i = 0; i < std::min(group.size, even / group.stride); ++i)
      spread.add({static_cast<int>((group.first + i * group.stride) % gpus)});
    return spread;
  }
  spread.nodes = spread.last - spread.first + 1;
  for (std::int64_t node = spread.first; node <= std::min(spread.last, spread.first + even / gpus); ++node)
    spread.add(members_on(node, group, gpus));
  spread.add(members_on(spread.last, group, gpus));
  return spread;
}

Spread spread_of(const std::vector<std::int64_t>& ranks, std::int64_t gpus) {
  std::map<std::int64_t, GpuSet> by_node;
  for (const std::int64_t rank : ranks) by_node[rank / gpus].push_back(static_cast<int>(rank % gpus));
  Spread spread{static_cast<std::int64_t>(by_node.size()), by_node.begin()->first, by_node.rbegin()->first, {}};
  for (auto& [node, members] : by_node) spread.add(std::move(members));
  return spread;
}

/// What a set of GPUs of one node gets inside it.
struct LocalShape {
  double ring = std::numeric_limits<double>::infinity();
  double all_to_all = ring, pair = ring;
  double latency = 0;
  bool direct = true;
};

/// Shortest routes (by latency, then hops) between the GPUs of a node.
class Routes {
 public:
  explicit Routes(const NodeGraph& graph) : graph_(graph) {}

  void build(int gpus) {
    for (int gpu = 0; gpu < gpus; ++gpu) {
      std::vector<VertexId> predecessors(boost::num_vertices(graph_));
      boost::dijkstra_shortest_paths(graph_, static_cast<VertexId>(gpu),
                                     boost::predecessor_map(predecessors.data()).weight_map(boost::get(&Edge::latency, graph_)));
      from_.push_back(std::move(predecessors));
    }
  }

  /// Calls `visit` with every link of the route, from the last to the first.
  template <class Visit>
  void walk(int from, int to, Visit visit) const {
    const auto& predecessors = from_[static_cast<std::size_t>(from)];
    for (auto at = static_cast<VertexId>(to); at != static_cast<VertexId>(from); at = predecessors[at]) {
      if (predecessors[at] == at) fail("no route between GPU " + std::to_string(from) + " and GPU " + std::to_string(to) + " of a node");
      visit(graph_[boost::edge(predecessors[at], at, graph_).first]);
    }
  }

 private:
  const NodeGraph& graph_;
  std::vector<std::vector<VertexId>> from_;
};

/// Traffic per link when several sets of GPUs communicate at once.
class Loads {
 public:
  Loads(const NodeGraph& graph, const Routes& routes) : routes_(routes), load_(boost::num_edges(graph)) {}

  void add(int from, int to, double traffic) {
    routes_.walk(from, to, [&](const Edge& edge) { load_[edge.index] += traffic; });
  }
  /// What a unit flow between the two gets: the most loaded link of its route decides.
  double share(int from, int to) const {
    double bandwidth = std::numeric_limits<double>::infinity();
    routes_.walk(from, to, [&](const Edge& edge) { bandwidth = std::min(bandwidth, edge.bandwidth / load_[edge.index]); });
    return bandwidth;
  }

 private:
  const Routes& routes_;
  std::vector<double> load_;
};

template <class Visit>
void for_each_hop(const GpuSet& ring, Visit visit) {
  for (std::size_t i = 0; i < ring.size(); ++i) visit(ring[i], ring[(i + 1) % ring.size()]);
}

template <class Visit>
void for_each_pair(const GpuSet& members, Visit visit) {
  for (int from : members)
    for (int to : members)
      if (from != to) visit(from, to);
}

}  // namespace

struct Topology::Graph {
  explicit Graph(const Cluster& described) : cluster(described) {
    const NodeBuilder builder(cluster.node, node);
    routes.build(cluster.node.gpus);
  }

  /// What `members` get while all sets of `active` (theirs among them) communicate.
  LocalShape local(const GpuSet& members, const std::vector<GpuSet>& active) const;
  /// Of a group of `size` ranks; `siblings`: the sets of the sibling groups on one node.
  GroupShape shape(std::int64_t size, const Spread& spread, const std::vector<GpuSet>& siblings) const;

  double direct_links(int a, int b) const;
  double minimum_cut(const GpuSet& members) const;
  void add_network(GroupShape& shape, const Spread& spread, std::size_t siblings) const;
  double spine_share(GroupShape& shape, const Spread& spread, bool all_to_all) const;

  Cluster cluster;
  NodeGraph node;
  Routes routes{node};
};

/// Bandwidth of the links of their own that two GPUs have; 0 when traffic between them needs a switch, a CPU or another GPU.
double Topology::Graph::direct_links(int a, int b) const {
  const auto [edge, found] = boost::edge(static_cast<VertexId>(a), static_cast<VertexId>(b), node);
  return found ? node[edge].bandwidth : 0;
}

/// Minimum cut of the members' own links, one direction; 0 when they are not connected by links of their own.
double Topology::Graph::minimum_cut(const GpuSet& members) const {
  using Undirected = boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, boost::no_property,
                                           boost::property<boost::edge_weight_t, double>>;
  Undirected own(members.size());
  for (std::size_t i = 0; i < members.size(); ++i)
    for (std::size_t j = i + 1; j < members.size(); ++j)
      if (const double links = direct_links(members[i], members[j]); links > 0) boost::add_edge(i, j, links, own);
  if (boost::num_edges(own) + 1 < members.size()) return 0;
  return boost::stoer_wagner_min_cut(own, boost::get(boost::edge_weight, own));
}

LocalShape Topology::Graph::local(const GpuSet& members, const std::vector<GpuSet>& active) const {
  LocalShape shape;
  if (members.size() < 2) return shape;
  Loads ring(node, routes), all_to_all(node, routes);
  for (const GpuSet& set : active) {
    const double share = 1.0 / static_cast<double>(std::max<std::size_t>(set.size(), 2) - 1);
    for_each_hop(set, [&](int from, int to) {
      if (from != to) ring.add(from, to, 1);
    });
    for_each_pair(set, [&](int from, int to) { all_to_all.add(from, to, share); });
  }
  for_each_hop(members, [&](int from, int to) {
    double latency = 0;
    routes.walk(from, to, [&](const Edge& edge) { latency += edge.latency; });
    shape.latency = std::max(shape.latency, latency);
    shape.pair = std::min(shape.pair, ring.share(from, to));
  });
  for_each_pair(members, [&](int from, int to) {
    shape.all_to_all = std::min(shape.all_to_all, all_to_all.share(from, to));
    shape.direct = shape.direct && direct_links(from, to) > 0;
  });
  shape.ring = std::max(shape.pair, minimum_cut(members));
  return shape;
}

/// The share of the network that passes the spine. A leaf of n nodes has n / oversubscription node uplinks. Of a ring, one member per leaf
/// sends upwards; of an all-to-all, every member sends the part that goes to other leaves. Crossing makes a hop half as long again.
double Topology::Graph::spine_share(GroupShape& shape, const Spread& spread, bool all_to_all) const {
  const Fabric& fabric = cluster.fabric;
  const std::int64_t first = spread.first, last = spread.last;
  if (fabric.nodes_per_leaf == 0 || first / fabric.nodes_per_leaf == last / fabric.nodes_per_leaf) return 1;
  const double stride = std::max(1.0, static_cast<double>(last - first) / static_cast<double>(shape.nodes - 1));
  const double in_leaf = std::max(1.0, static_cast<double>(fabric.nodes_per_leaf) / stride);
  if (!all_to_all) return std::min(1.0, in_leaf / fabric.oversubscription);
  const double leaving = (static_cast<double>(shape.nodes) - in_leaf) / static_cast<double>(shape.nodes - 1);
  return std::min(1.0, 1 / (fabric.oversubscription * leaving));
}

void Topology::Graph::add_network(GroupShape& shape, const Spread& spread, std::size_t siblings) const {
  const Node& described = cluster.node;
  if (described.nics == 0)
    refuse(fmt::format("a group of {} ranks spans {} nodes, but the nodes of {} have no network", shape.size, shape.nodes, cluster.name),
           {},
           fmt::format("a node has {} GPUs; other nodes are described by a cluster file of your own, docs/hardware.md", described.gpus));
  std::size_t nics_used = std::numeric_limits<std::size_t>::max();
  bool same_rail = true;
  for (const GpuSet& members : spread.sets) {
    std::set<int> nics;
    for (int gpu : members) nics.insert(gpu * described.nics / described.gpus);
    nics_used = std::min(nics_used, nics.size());
    same_rail = same_rail && members == spread.sets.front();
  }
  shape.sharers = std::max<std::int64_t>(1, ceil_div(static_cast<std::int64_t>(siblings * nics_used), described.nics));
  const double nic = described.nic.achieved.value.value;
  const double node_bandwidth = nic * static_cast<double>(nics_used) / static_cast<double>(shape.sharers);
  const double n = static_cast<double>(shape.size), q = static_cast<double>(shape.per_node);
  shape.inter = BytesPerSecond(node_bandwidth / q);
  shape.ring = BytesPerSecond(std::min(shape.intra_ring.value, node_bandwidth * spine_share(shape, spread, false)));
  shape.pair = std::min(shape.pair, shape.inter, [](BytesPerSecond a, BytesPerSecond b) { return a < b; });
  const double remote = shape.inter.value * spine_share(shape, spread, true) * (n - 1) / (n - q);
  const double within = q > 1 ? shape.all_to_all.value * (n - 1) / (q - 1) : remote;
  shape.all_to_all = BytesPerSecond(std::min(remote, within));
  const bool crosses = (cluster.fabric.rails && !same_rail) || spine_share(shape, spread, true) < 1;
  shape.inter_latency = Seconds(described.nic.latency.value.value * (crosses ? 1.5 : 1.0));
  shape.direct = false;
}

GroupShape Topology::Graph::shape(std::int64_t size, const Spread& spread, const std::vector<GpuSet>& siblings) const {
  GroupShape shape;
  shape.size = size;
  shape.nodes = spread.nodes;
  LocalShape worst;
  for (const GpuSet& members : spread.sets) {
    const bool among = std::find(siblings.begin(), siblings.end(), members) != siblings.end();
    const LocalShape here = local(members, among ? siblings : std::vector<GpuSet>{members});
    worst = {std::min(worst.ring, here.ring), std::min(worst.all_to_all, here.all_to_all), std::min(worst.pair, here.pair),
             std::max(worst.latency, here.latency), worst.direct && here.direct};
    shape.per_node = std::max(shape.per_node, static_cast<std::int64_t>(members.size()));
    shape.uniform = shape.uniform && members.size() == spread.sets.front().size();
  }
  shape.ring = shape.intra_ring = BytesPerSecond(worst.ring);
  shape.all_to_all = BytesPerSecond(worst.all_to_all);
  shape.pair = BytesPerSecond(worst.pair);
  shape.intra_latency = Seconds(worst.latency);
  shape.direct = worst.direct && shape.size > 1;
  if (shape.nodes > 1) add_network(shape, spread, std::max<std::size_t>(siblings.size(), 1));
  return shape;
}

Topology::Topology(const Cluster& cluster) : graph_(std::make_unique<Graph>(cluster)) {}
Topology::~Topology() = default;
Topology::Topology(Topology&&) noexcept = default;
Topology& Topology::operator=(Topology&&) noexcept = default;

namespace {

void check_rank(const Cluster& cluster, std::int64_t rank) {
  if (rank < 0 || rank >= cluster.gpus())
    fail(fmt::format("rank {} lies outside the {} GPUs of {}", rank, with_thousands(cluster.gpus()), cluster.name));
}

/// The groups of that layout which have members on the node of `first`: rank r belongs to group (r / (stride·size), r mod stride).
std::vector<GpuSet> siblings_on_node(const Cluster& cluster, const RankGroup& group) {
  const std::int64_t start = group.first / cluster.gpus_per_node * cluster.gpus_per_node;
  std::map<std::pair<std::int64_t, std::int64_t>, GpuSet> sets;
  for (int gpu = 0; gpu < cluster.gpus_per_node; ++gpu) {
    const std::int64_t rank = start + gpu;
    sets[{rank / (group.stride * group.size), rank % group.stride}].push_back(gpu);
  }
  std::vector<GpuSet> found;
  for (auto& [key, members] : sets) found.push_back(std::move(members));
  return found;
}

}  // namespace

GroupShape Topology::group(const RankGroup& group, Siblings siblings) const {
  const Cluster& cluster = graph_->cluster;
  if (group.size < 1 || group.stride < 1) fail(fmt::format("{} ranks {} apart are no group", group.size, group.stride));
  check_rank(cluster, group.first);
  if (group.size - 1 > (cluster.gpus() - 1 - group.first) / group.stride)
    fail(fmt::format("{} ranks {} apart do not fit into {} GPUs", group.size, group.stride, with_thousands(cluster.gpus())));
  return graph_->shape(group.size, spread_of(group, cluster.gpus_per_node),
                       siblings == Siblings::all ? siblings_on_node(cluster, group) : std::vector<GpuSet>{});
}

GroupShape Topology::group_bandwidth(const std::vector<std::int64_t>& ranks) const {
  if (ranks.empty()) fail("a group has at least one rank");
  for (std::int64_t rank : ranks) check_rank(graph_->cluster, rank);
  return graph_->shape(static_cast<std::int64_t>(ranks.size()), spread_of(ranks, graph_->cluster.gpus_per_node), {});
}

Link Topology::route(std::int64_t from, std::int64_t to) const {
  const Cluster& cluster = graph_->cluster;
  check_rank(cluster, from);
  check_rank(cluster, to);
  Link link;
  if (from / cluster.gpus_per_node != to / cluster.gpus_per_node) {
    if (cluster.node.nics == 0) refuse("the nodes of " + cluster.name + " have no network");
    return cluster.node.nic;
  }
  link.achieved.value = BytesPerSecond(std::numeric_limits<double>::infinity());
  graph_->routes.walk(static_cast<int>(from % cluster.gpus_per_node), static_cast<int>(to % cluster.gpus_per_node), [&](const Edge& edge) {
    link.latency.value += Seconds(edge.latency);
    link.achieved.value = BytesPerSecond(std::min(link.achieved.value.value, edge.bandwidth));
  });
  link.bandwidth = link.achieved;
  return link;
}

std::string Topology::dot() const {
  std::string text = "digraph node {\n";
  const NodeGraph& node = graph_->node;
  for (auto [edge, end] = boost::edges(node); edge != end; ++edge)
    text += fmt::format("  {} -> {} [label=\"{}\"];\n", node[boost::source(*edge, node)].name, node[boost::target(*edge, node)].name,
                        to_string(BytesPerSecond(node[*edge].bandwidth)));
  return text + "}\n";
}

}  // namespace plimsoll

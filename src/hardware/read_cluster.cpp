#include <algorithm>
#include <utility>

#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/power_limit.hpp"

namespace plimsoll::hardware {
namespace {

constexpr int kMostGpusPerNode = 1024;

Link read_link(const JsonValue& object) {
  return {read_sourced(object["bandwidth"], bandwidth_value), read_sourced(object["achieved"], bandwidth_value),
          read_sourced(object["latency"], seconds_value)};
}

Link read_optional_link(const JsonValue& object, std::string_view key) {
  const auto found = object.find(key);
  return found ? read_link(*found) : Link{};
}

NodeFabric read_fabric_kind(const JsonValue& value) {
  std::vector<std::string> names;
  for (int i = 0; i < 4; ++i) {
    names.emplace_back(name_of(static_cast<NodeFabric>(i)));
    if (value.text() == names.back()) return static_cast<NodeFabric>(i);
  }
  fail("'" + value.text() + "' is no kind of node", value.where(), suggest(value.text(), names));
}

std::vector<CollectivePoint> read_points(const JsonValue& object) {
  std::vector<CollectivePoint> points;
  object["points_unit"].mark_read();
  for (const auto& point : object["points"].elements()) {
    points.push_back({Bytes(point.at(0).integer(1, std::int64_t{1} << 50)), Seconds(point.at(1).number(1e-3, 1e12) * 1e-6)});
    if (points.size() > 1 && points.back().bytes <= points[points.size() - 2].bytes) point.expected("a larger size than the point before");
  }
  if (points.size() < 2) object["points"].expected("at least two points");
  return points;
}

CollectiveCurve read_curve(const JsonValue& object) {
  CollectiveCurve curve{static_cast<int>(object["gpus"].integer(2, 1 << 20)),
                        static_cast<int>(object["nodes"].integer(1, 1 << 20)),
                        object["source"].text(),
                        optional_text(object, "note"),
                        {}};
  read_provenance(object["provenance"]);
  if (object.has("algorithm")) curve.algorithm = object["algorithm"].text();
  if (curve.algorithm != "ring" && curve.algorithm != "nvls") object["algorithm"].expected("\"ring\" or \"nvls\"");
  if (const auto launch = object.find("launch")) curve.launch = seconds_value(*launch);
  curve.points = read_points(object);
  if (!(curve.launch < curve.points.front().time)) object["launch"].expected("less than the time of the first point");
  return curve;
}

void read_curves(const JsonValue& object, std::string_view key, std::vector<CollectiveCurve>& curves) {
  if (const auto found = object.find(key))
    for (const auto& curve : found->elements()) curves.push_back(read_curve(curve));
}

void read_measured(const JsonValue& object, std::vector<MeasuredCollective>& measured) {
  const std::vector<std::string> kinds{"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};
  const auto found = object.find("measured");
  if (!found) return;
  for (const auto& each : found->elements()) {
    const std::string kind = each["kind"].text();
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) fail("no curve is read of '" + kind + "'", each["kind"].where(), suggest(kind, kinds));
    read_provenance(each["provenance"]);
    measured.push_back({kind, static_cast<int>(each["gpus"].integer(2, kMostGpusPerNode)), each["source"].text(), optional_text(each, "note"), read_points(each)});
  }
}

/// Factors by which work and communication that run beside each other take longer.
Contention read_contention(const JsonValue& object) {
  const auto factor = [](const JsonValue& value) { return value.number(1, 10); };
  return {read_sourced(object["memory_bound"], +factor), read_sourced(object["communication"], +factor)};
}

/// One value per number of nodes: one, two, more.
void read_by_nodes(const JsonValue& object, std::string_view key, Sourced<BytesPerSecond> (&values)[3]) {
  const auto found = object.find(key);
  if (!found) return;
  for (std::size_t i = 0; i < 3; ++i) values[i] = read_sourced(found->at(i), bandwidth_value);
}

CollectiveLibrary read_library(const JsonValue& object, NodeFabric fabric) {
  CollectiveLibrary library;
  library.name = object["library"].text();
  library.channels = static_cast<int>(object["channels"].integer(1, 1024));
  library.ring = read_sourced(object["ring"], bandwidth_value);
  read_by_nodes(object, "ll_max", library.ll_max);
  read_by_nodes(object, "tree_per_channel", library.tree_per_channel);
  read_by_nodes(object, "ll128_per_channel", library.ll128_per_channel);
  read_by_nodes(object, "ll128_tree_per_channel", library.ll128_tree_per_channel);
  library.nvls = read_optional(object, "nvls", bandwidth_value);
  library.all_to_all = read_optional(object, "all_to_all", bandwidth_value);
  library.launch = read_optional(object, "launch", seconds_value);
  library.pipeline = read_optional(object, "pipeline", seconds_value);
  if (library.pipeline.value.value > 0) library.ll_share = read_sourced(object["ll_share"], positive_share_value);
  library.network_all_to_all = read_optional(object, "network_all_to_all", positive_share_value);
  if (const auto pat = object.find("pat")) library.pat = pat->boolean();
  read_curves(object, "all_reduce", library.all_reduce);
  read_curves(object, "reduce_scatter", library.reduce_scatter);
  read_measured(object, library.measured);
  library.contention = read_contention(object["contention"]);
  fill_latencies(library, fabric, object["library"].where());
  return library;
}

void read_pairs(const JsonValue& object, Node& node) {
  const auto found = object.find("pairs");
  if (!found) return;
  for (const auto& pair : found->elements()) {
    const GpuPair read{static_cast<int>(pair.at(0).integer(0, node.gpus - 1)), static_cast<int>(pair.at(1).integer(0, node.gpus - 1)),
                       static_cast<int>(pair.at(2).integer(1, 64))};
    if (read.first == read.second) pair.expected("two different GPUs");
    node.pairs.push_back(read);
  }
}

Node read_node(const JsonValue& object) {
  Node node;
  node.gpus = static_cast<int>(object["gpus"].integer(1, kMostGpusPerNode));
  const auto host = object.find("gpus_per_host");
  node.gpus_per_host = host ? static_cast<int>(host->integer(1, node.gpus)) : node.gpus;
  node.fabric = read_fabric_kind(object["fabric"]);
  read_pairs(object, node);
  const bool direct_links = node.fabric != NodeFabric::pcie_tree || !node.pairs.empty();
  if (direct_links) node.gpu_link = read_link(object["gpu_link"]);
  if (const auto per_switch = object.find("gpus_per_pcie_switch"))
    node.gpus_per_pcie_switch = static_cast<int>(per_switch->integer(0, node.gpus));
  node.sockets = static_cast<int>(object["sockets"].integer(1, node.gpus));
  node.host_link = read_link(object["host_link"]);
  node.uplink = read_optional_link(object, "uplink");
  if (node.gpus_per_pcie_switch > 0 && !object.has("uplink")) object.expected("an /uplink for the PCIe switches");
  node.socket_link = read_link(object["socket_link"]);
  node.nics = static_cast<int>(object["nics"].integer(0, kMostGpusPerNode));
  if (node.nics > 0) node.nic = read_link(object["nic"]);
  node.host_memory_bandwidth = read_sourced(object["host_memory_bandwidth"], bandwidth_value);
  if (const auto memory = object.find("host_memory")) node.host_memory = read_sourced(*memory, bytes_value);
  node.collectives = read_library(object["collectives"], node.fabric);
  return node;
}

}  // namespace

Cluster read_cluster(const JsonValue& root) {
  root.check_printable();
  require_all(root,
              {"name", "title", "accelerator", "nodes", "node.gpus", "node.fabric", "node.sockets", "node.host_link", "node.socket_link", "node.nics",
               "node.host_memory_bandwidth", "node.collectives.library", "node.collectives.channels", "node.collectives.ring", "node.collectives.contention",
               "fabric.nodes_per_leaf", "fabric.oversubscription", "fabric.rails", "sources"},
              "cluster");
  Cluster cluster;
  cluster.name = root["name"].text();
  cluster.title = root["title"].text();
  const JsonValue accelerator = root["accelerator"];
  cluster.accelerator = accelerator.is_object() ? read_accelerator(accelerator) : load_accelerator(accelerator.text());
  cluster.nodes = root["nodes"].integer(1, 1 << 20);
  cluster.node = read_node(root["node"]);
  cluster.gpus_per_node = cluster.node.gpus;
  const JsonValue fabric = root["fabric"];
  cluster.fabric.nodes_per_leaf = fabric["nodes_per_leaf"].integer(0, 1 << 20);
  cluster.fabric.oversubscription = fabric["oversubscription"].number(1, 1000);
  cluster.fabric.rails = fabric["rails"].boolean();
  cluster.sources = read_sources(root);
  const auto limit = root.find("power_limit");
  if (limit) cluster = held_to(std::move(cluster), read_sourced(*limit, watts_value).value, limit->where());
  check_complete(root);
  return cluster;
}

}  // namespace plimsoll::hardware

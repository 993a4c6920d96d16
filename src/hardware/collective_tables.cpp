// Latency tables of the collective libraries' own cost models, in microseconds.
// NCCL: src/graph/tuning.cc (baseLat, hwLat). RCCL: the gfx942 model of its tuning_models.h: 0.8 / 2.1 us per xGMI hop.
#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::hardware {
namespace {

struct Microseconds {
  double base_ring, base_tree, intra_ring, intra_tree, network_ring, network_tree;
};

ProtocolLatency in_seconds(const Microseconds& table) {
  const auto us = [](double value) { return Seconds(value * 1e-6); };
  return {us(table.base_ring),  us(table.base_tree),    us(table.intra_ring),
          us(table.intra_tree), us(table.network_ring), us(table.network_tree)};
}

struct LatencyTable {
  Microseconds ll, ll128, simple;
};

constexpr LatencyTable kNcclNvlink{{6.6, 6.8, 0.6, 0.6, 2.7, 5.0}, {14, 14, 1.9, 1.25, 4.0, 8.5}, {8.4, 8.4, 3.4, 4.0, 14, 14}};
constexpr LatencyTable kNcclPcie{{6.6, 6.8, 1.0, 1.0, 2.7, 5.0}, {14, 14, 2.5, 1.9, 4.0, 8.5}, {8.4, 8.4, 5.7, 4.0, 14, 14}};
constexpr LatencyTable kRccl{{6.6, 6.8, 0.8, 0.8, 9.5, 9.5}, {0, 0, 0, 0, 0, 0}, {8.4, 8.4, 2.1, 2.1, 14, 14}};
/// An MPI library has no tables of its own: what is not measured follows from the links.
constexpr LatencyTable kMpi{{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, {1, 1, 1, 1, 5, 5}};

}  // namespace

void fill_latencies(CollectiveLibrary& library, NodeFabric fabric, const std::string& where) {
  if (library.name != "nccl" && library.name != "rccl" && library.name != "mpi")
    fail("'" + library.name + "' is no collective library", where, suggest(library.name, {"nccl", "rccl", "mpi"}));
  const LatencyTable& table = library.name == "mpi"             ? kMpi
                              : library.name == "rccl"          ? kRccl
                              : fabric == NodeFabric::pcie_tree ? kNcclPcie
                                                                : kNcclNvlink;
  library.ll = in_seconds(table.ll);
  library.ll128 = in_seconds(table.ll128);
  library.simple = in_seconds(table.simple);
  library.network_overhead = Seconds(1e-6);
}

/// The library's low-latency protocols cross no network whose plug-in lacks them.
void keep_simple_protocol(CollectiveLibrary& library) {
  for (auto* table : {&library.ll_max, &library.ll128_per_channel, &library.ll128_tree_per_channel}) (*table)[1] = (*table)[2] = {};
}

void set_network(CollectiveLibrary& library, const std::string& name) {
  const JsonDocument document = shipped_document("hardware/networks.json");
  const auto network = document.root()["networks"].find(name);
  if (!network) return;
  const auto protocols = (*network)["protocols"].elements();
  if (protocols.size() == 1 && protocols.front().text() == "Simple") keep_simple_protocol(library);
  library.network_overhead = read_sourced((*network)["message"], seconds_value).value;
  library.tree_hop = read_optional(*network, "tree_hop", seconds_value).value;
  library.nvls_tree = read_optional(*network, "nvls_tree", positive_share_value);
}

}  // namespace plimsoll::hardware

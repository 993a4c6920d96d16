// Machines as tools show them: a cluster whose rates are assumed and whose shape is seen.
#include "plimsoll/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "formats/foreign/cluster_texts.hpp"
#include "formats/foreign/format.hpp"
#include "formats/foreign/read_run.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/formats.hpp"

namespace plimsoll {
namespace formats {
namespace {

constexpr const char* kSeen = "seen";

std::vector<std::string> split(const std::string& line, const char* separators) {
  std::vector<std::string> words;
  for (std::size_t at = line.find_first_not_of(separators); at != std::string::npos; at = line.find_first_not_of(separators, at)) {
    const std::size_t end = std::min(line.find_first_of(separators, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

bool is_numbered(const std::string& word, std::string_view front) {
  return word.size() > front.size() && word.compare(0, front.size(), front) == 0 &&
         word.find_first_not_of("0123456789", front.size()) == std::string::npos;
}

/// A matrix of who reaches whom how: "X", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS" between GPUs, and the NICs beside them.
struct Topology {
  std::vector<std::vector<std::string>> rows;  ///< of the GPUs, a word for every GPU
  int nics = 0;
  std::set<std::string> numa_nodes;
};

Topology topology_of(const std::string& text) {
  Topology seen;
  std::istringstream stream(text);
  std::size_t gpus = 0;
  for (std::string line; std::getline(stream, line);) {
    const std::vector<std::string> words = split(line, " \t");
    if (words.size() < 2 || !is_numbered(words[0], "GPU")) continue;
    if (is_numbered(words[1], "GPU")) {  // the head of the table
      gpus = static_cast<std::size_t>(
          std::count_if(words.begin(), words.end(), [](const std::string& word) { return is_numbered(word, "GPU"); }));
      seen.nics = static_cast<int>(std::count_if(words.begin(), words.end(), [](const std::string& word) {
        return is_numbered(word, "NIC") || is_numbered(word, "mlx5_") || is_numbered(word, "bnxt_re");
      }));
    } else if (gpus > 0 && words.size() > gpus) {
      seen.rows.emplace_back(words.begin() + 1, words.begin() + 1 + static_cast<std::ptrdiff_t>(gpus));
      if (words.size() > gpus + static_cast<std::size_t>(seen.nics) + 2)
        seen.numa_nodes.insert(words[gpus + static_cast<std::size_t>(seen.nics) + 2]);
    }
  }
  return seen;
}

/// GPUs that a GPU reaches without leaving PCIe switches, itself among them; as many for every GPU, or 0.
int behind_one_switch(const Topology& seen) {
  int each = 0;
  for (const std::vector<std::string>& row : seen.rows) {
    const auto near = 1 + std::count_if(row.begin(), row.end(), [](const std::string& word) { return word == "PIX" || word == "PXB"; });
    if (each != 0 && near != each) return 0;
    each = static_cast<int>(near);
  }
  return each > 1 ? each : 0;
}

std::vector<GpuPair> linked_pairs(const Topology& seen) {
  std::vector<GpuPair> pairs;
  for (std::size_t i = 0; i < seen.rows.size(); ++i)
    for (std::size_t j = i + 1; j < seen.rows[i].size(); ++j)
      if (is_numbered(seen.rows[i][j], "NV"))
        pairs.push_back({static_cast<int>(i), static_cast<int>(j), std::atoi(seen.rows[i][j].c_str() + 2)});
  return pairs;
}

class Machine {
 public:
  explicit Machine(Cluster cluster) : cluster_(std::move(cluster)) { assume_rates(); }

  void see(const std::string& what, const std::string& where) { seen_ += (seen_.empty() ? "" : "; ") + what + " (" + where + ")"; }

  void see_topology(const Topology& seen, const std::string& where) {
    const auto gpus = static_cast<int>(seen.rows.size());
    if (gpus == 0) return;
    plimsoll::Node& node = cluster_.node;
    node.gpus = node.gpus_per_host = gpus;
    const std::vector<GpuPair> pairs = linked_pairs(seen);
    const auto all = static_cast<std::size_t>(gpus) * static_cast<std::size_t>(gpus - 1) / 2;
    if (!pairs.empty() && node.gpu_link.bandwidth.value.value <= 0)
      fail("NVLink joins GPUs here, and the usual node of " + cluster_.accelerator.name + " has none: its rate is not known", where,
           "give a file with node.gpu_link, or --on with a device that has NVLink");
    const bool equal = std::all_of(pairs.begin(), pairs.end(), [&](const GpuPair& pair) { return pair.links == pairs.front().links; });
    if (pairs.empty()) {
      node.fabric = NodeFabric::pcie_tree;
      node.pairs.clear();
      node.collectives.nvls = {};
    } else if (node.fabric != NodeFabric::nvswitch || pairs.size() != all || !equal) {
      node.fabric = NodeFabric::links;
      node.pairs = pairs;
      node.collectives.nvls = {};
    }
    if (const int near = behind_one_switch(seen); near > 0) node.gpus_per_pcie_switch = near;
    node.nics = seen.nics;
    if (!seen.numa_nodes.empty()) node.sockets = static_cast<int>(seen.numa_nodes.size());
    see(fmt::format("{} GPUs, {}, {} NICs", gpus,
                    pairs.empty() ? std::string("no NVLink") : fmt::format("{} of {} pairs joined by NVLink", pairs.size(), all),
                    seen.nics),
        where);
  }

  /// lscpu: "Socket(s):  2".
  void see_host(const std::string& text, const std::string& where) {
    const std::size_t at = text.find("Socket(s):");
    if (at == std::string::npos) return;
    const int sockets = std::atoi(text.c_str() + at + std::string_view("Socket(s):").size());
    constexpr int kMostSockets = 64;
    if (sockets < 1 || sockets > kMostSockets) fail("no number of sockets behind Socket(s)", where);
    cluster_.node.sockets = sockets;
    see(fmt::format("{} sockets", sockets), where);
  }

  Cluster take() && {
    cluster_.sources.push_back({kSeen, seen_});
    cluster_.title =
        fmt::format("{} x {} {}, its shape as tools showed it", cluster_.nodes, cluster_.gpus_per_node, cluster_.accelerator.title);
    cluster_.name = fmt::format("{}x{}x{}-seen", cluster_.nodes, cluster_.gpus_per_node, cluster_.accelerator.name);
    return std::move(cluster_);
  }

 private:
  template <class T>
  static void assume(Sourced<T>& value) {
    value.provenance = Provenance::assumed;
  }
  static void assume_link(Link& link) {
    assume(link.bandwidth);
    assume(link.achieved);
    assume(link.latency);
  }

  /// No tool that is read shows a rate.
  void assume_rates() {
    plimsoll::Node& node = cluster_.node;
    for (Link* link : {&node.gpu_link, &node.host_link, &node.uplink, &node.socket_link, &node.nic}) assume_link(*link);
    assume(node.host_memory_bandwidth);
    CollectiveLibrary& library = node.collectives;
    for (auto* rates : {&library.ll_max, &library.ll128_per_channel, &library.ll128_tree_per_channel, &library.tree_per_channel})
      for (auto& rate : *rates) assume(rate);
    for (auto* rate : {&library.ring, &library.nvls, &library.all_to_all}) assume(*rate);
    for (auto* share : {&library.nvls_tree, &library.network_all_to_all, &library.ll_share}) assume(*share);
    for (auto* time : {&library.launch, &library.pipeline}) assume(*time);
  }

  Cluster cluster_;
  std::string seen_;
};

/// What a text tells of the machines, whatever else it is.
void read_machine_file(Reading& reading, const std::string& path, const std::string& text) {
  if (read_cluster_text(reading, text, path)) return;
  if (!is_script(path, text)) return read_file(reading, path, "kubernetes");
  (void)read_command(reading, launch_of_script(reading, text, path));
}

}  // namespace
}  // namespace formats

Cluster read_machine(const std::vector<std::string>& files, const std::string& on) {
  using namespace formats;
  Reading reading;
  std::vector<std::pair<std::string, std::string>> texts;
  for (const std::string& path : files) {
    texts.emplace_back(path, reading.text_of(path));
    read_machine_file(reading, path, texts.back().second);
  }
  Machine machine(cluster_of_run(reading, {{}, on, {}}));
  for (const char* key : {"cluster.device", "cluster.nodes", "cluster.gpus_per_node"})
    if (const ForeignKey* found = reading.find(key)) machine.see(found->foreign + " " + found->value, found->where);
  for (const auto& [path, text] : texts) {
    if (text.find("GPU0") != std::string::npos) machine.see_topology(topology_of(text), path);
    if (text.find("Architecture:") != std::string::npos) machine.see_host(text, path);
  }
  return std::move(machine).take();
}

}  // namespace plimsoll

// What tools print of machines: how many devices a node has, how many nodes there are, and, where it is told, which devices.
#include "formats/foreign/cluster_texts.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool starts_with(const std::string& text, std::string_view front) { return text.rfind(front, 0) == 0; }

/// A product's name as tools print it ("NVIDIA-H100-80GB-HBM3", "h100") where it is a device that is known.
void say_device(Reading& reading, std::string name, const std::string& foreign, const std::string& where) {
  std::vector<std::string> candidates = {name};
  std::replace(name.begin(), name.end(), '-', ' ');
  candidates.push_back(name);
  for (const char* maker : {"NVIDIA ", "AMD "})
    if (starts_with(name, maker)) candidates.push_back(name.substr(std::string_view(maker).size()));
  for (const std::string& candidate : candidates) {
    try {
      return reading.say("cluster.device", load_accelerator(candidate).name, foreign, where);
    } catch (const Error&) {
      continue;  // the next spelling
    }
  }
  reading.leave_unread(foreign + " " + candidates.front() + ": no device of that name is known", where);
}

/// The rows "GPU0 …" of a matrix; the links between devices, by name, that stand in them.
void read_matrix(Reading& reading, const std::string& text, const std::string& where, const char* tool) {
  std::istringstream stream(text);
  std::set<std::string> gpus, links;
  for (std::string line; std::getline(stream, line);) {
    const auto words = words_of(line);
    if (words.size() < 2 || !starts_with(words[0], "GPU") || words[0].find_first_not_of("0123456789", 3) != std::string::npos ||
        starts_with(words[1], "GPU"))
      continue;
    gpus.insert(words[0]);
    for (const std::string& word : words)
      if (starts_with(word, "NV") || word == "PIX" || word == "PXB" || word == "PHB" || word == "NODE" || word == "SYS" || word == "XGMI" ||
          word == "PCIE")
        links.insert(word);
  }
  if (gpus.empty()) fail("shows no GPU", where, tool);
  reading.say("cluster.gpus_per_node", std::to_string(gpus.size()), tool, where);
  for (const std::string& link : links) reading.leave_unread("a link " + link + ": the rates are those of the device's usual node", where);
}

/// `sinfo -N` with a column GRES: a node once per partition.
void read_sinfo(Reading& reading, const std::string& text, const std::string& where) {
  std::istringstream stream(text);
  std::string line;
  std::getline(stream, line);
  const auto header = words_of(line);
  const auto column = std::find(header.begin(), header.end(), "GRES") - header.begin();
  std::set<std::string> nodes, resources;
  while (std::getline(stream, line)) {
    const auto words = words_of(line);
    if (words.empty()) continue;
    nodes.insert(words[0]);
    if (static_cast<std::size_t>(column) < words.size()) resources.insert(words[static_cast<std::size_t>(column)]);
  }
  if (nodes.empty()) fail("names no node", where, "sinfo -N -o '%N %G'");
  reading.say("cluster.nodes", std::to_string(nodes.size()), "sinfo", where);
  if (resources.empty()) return reading.leave_unread("sinfo has no column GRES: the GPUs of a node could not be seen", where);
  if (resources.size() > 1) refuse("nodes with different GPUs are not modelled", where, "list one partition: sinfo -N -p …");
  std::string resource = resources.begin()->substr(0, resources.begin()->find('('));
  if (!starts_with(resource, "gpu:")) fail("expected gpu:NAME:COUNT in the column GRES, found " + resource.substr(0, 60), where);
  resource.erase(0, 4);
  const std::size_t colon = resource.find(':');
  reading.say("cluster.gpus_per_node", colon == std::string::npos ? resource : resource.substr(colon + 1), "GRES", where);
  if (colon != std::string::npos) say_device(reading, resource.substr(0, colon), "GRES", where);
}

const Rows& kubernetes_rows() {
  static const Rows rows = {{"items", kCode, "", nullptr,
                             "cluster.nodes: how many have GPUs; cluster.gpus_per_node: status.capacity nvidia.com/gpu or amd.com/gpu; the "
                             "device: label nvidia.com/gpu.product"},
                            {"items.*", kCode}};
  return rows;
}

int recognises_kubernetes(const Node& tree) {
  const Node *kind = tree.find("kind"), *items = tree.find("items");
  return kind && items && (kind->text == "List" || kind->text == "NodeList") ? 8 : 0;
}

void read_kubernetes(Reading& reading, const Node& tree) {
  std::int64_t nodes = 0;
  for (const auto& [unused, item] : tree.find("items")->members) {
    const Node* capacity = item.find("status.capacity");
    if (!capacity) continue;
    for (const char* resource : {"nvidia.com/gpu", "amd.com/gpu"}) {
      const Node* gpus = capacity->find(resource);
      if (!gpus || gpus->text == "0") continue;
      ++nodes;
      reading.say("cluster.gpus_per_node", gpus->text, resource, gpus->where);
    }
    const Node* labels = item.find("metadata.labels");
    const Node* product = labels ? labels->find("nvidia.com/gpu.product") : nullptr;
    if (product && !reading.has("cluster.device")) say_device(reading, product->text, "nvidia.com/gpu.product", product->where);
  }
  if (nodes == 0) fail("lists no node with GPUs", tree.where);
  reading.say("cluster.nodes", std::to_string(nodes), "items", tree.where);
}

}  // namespace

Format kubernetes_format() {
  return {"kubernetes",   "Kubernetes' list of nodes (kubectl get nodes -o json)", "Kubernetes v1", kubernetes_rows, recognises_kubernetes,
          read_kubernetes};
}

bool read_cluster_text(Reading& reading, const std::string& text, const std::string& where) {
  const bool matrix = text.find("GPU0") != std::string::npos;
  if (matrix && text.find("CPU Affinity") != std::string::npos) {
    read_matrix(reading, text, where, "nvidia-smi topo -m");
  } else if (matrix && text.find("ROCm System Management Interface") != std::string::npos) {
    read_matrix(reading, text, where, "rocm-smi --showtopo");
  } else if (starts_with(text, "NODELIST")) {
    read_sinfo(reading, text, where);
  } else if (text.find("Architecture:") != std::string::npos && text.find("CPU(s):") != std::string::npos) {
    reading.leave_unread("lscpu: the host's times are those of hardware/hosts.json", where);
  } else {
    return false;
  }
  reading.note_format("cluster");
  return true;
}

}  // namespace plimsoll::formats

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <mutex>
#include <optional>

#include "data/shipped_files.hpp"
#include "hardware/device_names.hpp"
#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/power_limit.hpp"
#include "units/text.hpp"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostGpus = std::int64_t{1} << 20;
constexpr std::string_view kAccelerators = "hardware/accelerators/";
constexpr std::string_view kClusters = "hardware/clusters/";

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool is_path(std::string_view text) { return text == "-" || ends_with(text, ".json") || text.find('/') != std::string_view::npos; }

std::vector<std::string> shipped_under(std::string_view folder) {
  std::vector<std::string> names;
  for (const auto* file : data::shipped_files_under(folder)) {
    const auto name = file->path.substr(folder.size());
    names.emplace_back(name.substr(0, name.size() - std::string_view(".json").size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// What a shipped file describes. It never changes and is read once: reading a device's file takes a twentieth of an estimate.
template <class T>
T shipped(const std::string& path, T (*read)(const JsonValue&)) {
  static std::mutex mutex;
  static std::map<std::string, T> known;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = known.find(path); found != known.end()) return found->second;
  }
  T value = read(hardware::shipped_document(path).root());
  const std::lock_guard<std::mutex> lock(mutex);
  return known.emplace(path, std::move(value)).first->second;
}

Cluster shipped_cluster(const std::string& name) { return shipped(std::string(kClusters) + name + ".json", hardware::read_cluster); }

/// A leading positive number followed by 'x', taken off `text`; 0 when the text does not start so. "16,384 x h100-sxm" is what reports
/// print.
std::int64_t take_count(std::string_view& text) {
  const auto is_digit = [&](std::size_t at) { return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])); };
  std::string digits;
  std::size_t at = 0;
  for (; is_digit(at) || (!digits.empty() && at < text.size() && text[at] == ',' && is_digit(at + 1)); ++at)
    if (text[at] != ',') digits += text[at];
  while (at < text.size() && text[at] == ' ') ++at;
  if (digits.empty() || at >= text.size() || (text[at] != 'x' && text[at] != 'X')) return 0;
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc() || end != digits.data() + digits.size() || count < 1 || count > kMostGpus)
    fail("'" + digits.substr(0, 24) + "' is no sensible number of nodes or GPUs", {}, "1 to " + with_thousands(kMostGpus));
  text.remove_prefix(at + 1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return count;
}

/// Of a rack-wide domain, the largest part (in whole hosts) that divides the GPUs evenly.
int domain_share(std::int64_t gpus, const Node& node) {
  for (int part = node.gpus; part >= node.gpus_per_host; part -= node.gpus_per_host)
    if (gpus % part == 0) return part;
  return node.gpus_per_host;
}

}  // namespace

std::vector<std::string> shipped_accelerators() { return shipped_under(kAccelerators); }
std::vector<std::string> shipped_clusters() { return shipped_under(kClusters); }
std::vector<std::pair<std::string, std::string>> accelerator_aliases() { return hardware::shipped_aliases().names; }

Accelerator load_accelerator(const std::string& name_or_path) {
  if (is_path(name_or_path)) return hardware::read_accelerator(JsonDocument::read_file(name_or_path).root());
  return shipped(std::string(kAccelerators) + hardware::canonical_device(name_or_path) + ".json", hardware::read_accelerator);
}

namespace {

/// `gpus` devices of such nodes.
Cluster shaped(Cluster cluster, std::int64_t gpus, int gpus_per_node, const std::string& where) {
  if (gpus < 1 || gpus > kMostGpus) fail(with_thousands(gpus) + " GPUs are no sensible number", where, "1 to " + with_thousands(kMostGpus));
  const int most = cluster.node.gpus;
  const bool rack = cluster.node.gpus_per_host < most;
  if (gpus_per_node > most)
    fail(with_thousands(gpus_per_node) + " GPUs per node, but a node of " + cluster.accelerator.name + " has " + std::to_string(most),
         where);
  int per_node = gpus_per_node > 0 ? gpus_per_node : static_cast<int>(std::min<std::int64_t>(gpus, most));
  if (rack && gpus > cluster.node.gpus_per_host) per_node = gpus <= most ? static_cast<int>(gpus) : domain_share(gpus, cluster.node);
  per_node = static_cast<int>(std::min<std::int64_t>(per_node, gpus));
  if (gpus % per_node != 0)
    fail(with_thousands(gpus) + " GPUs fill no whole nodes of " + std::to_string(per_node), where,
         "write nodes x GPUs per node x device, such as 2x4x" + cluster.accelerator.name);
  cluster.gpus_per_node = per_node;
  cluster.nodes = gpus / per_node;
  cluster.name = with_thousands(gpus) + " x " + cluster.accelerator.name;
  return cluster;
}

/// Nodes of a device that hold so many GPUs together: its usual ones, or the servers for whom these are too small.
Cluster on_nodes_for(Accelerator device, std::int64_t gpus) {
  const std::vector<std::string> clusters = shipped_clusters();
  for (const std::string& node : {device.node, device.server})
    if (!node.empty() && std::find(clusters.begin(), clusters.end(), node) == clusters.end())
      fail("there is no cluster '" + node.substr(0, 64) + "' for the device " + device.name, {}, suggest(node.substr(0, 64), clusters));
  Cluster cluster = shipped_cluster(device.node);
  if (gpus > cluster.node.gpus && !device.server.empty()) cluster = shipped_cluster(device.server);
  cluster.accelerator = std::move(device);
  return cluster;
}

/// A file that describes a cluster, or a device on its usual node.
Cluster cluster_from_file(const std::string& path) {
  const JsonDocument document = JsonDocument::read_file(path);
  const auto has = [&](const char* key) { return document.root().is_object() && document.root().has(key); };
  if (has("compute") || has("memory") || has("vendor"))
    return shaped(on_nodes_for(hardware::read_accelerator(document.root()), 1), 1, 0, path);
  return hardware::read_cluster(document.root());
}

/// "2xdevice.json", "2x8xcluster.json": that many of the file's devices.
Cluster counted_from_file(const std::string& text) {
  std::string_view rest = text;
  const std::int64_t first = take_count(rest), second = first > 0 ? take_count(rest) : 0;
  if (first == 0) return cluster_from_file(text);
  if (second > kMostGpus / first) fail(text + " is no sensible number of GPUs", {}, "1 to " + with_thousands(kMostGpus));
  return shaped(cluster_from_file(std::string(rest)), second == 0 ? first : first * second, static_cast<int>(second), text);
}

}  // namespace

Cluster cluster_of(const std::string& accelerator, std::int64_t gpus, int gpus_per_node, const std::string& where) {
  if (is_path(accelerator)) return shaped(cluster_from_file(accelerator), gpus, gpus_per_node, where);
  return shaped(on_nodes_for(load_accelerator(accelerator), gpus_per_node > 0 ? gpus_per_node : gpus), gpus, gpus_per_node, where);
}

namespace {

/// The text behind the device, "500W" of "8xh100-sxm@500W", and what stands before it.
std::pair<std::string, std::string> split_limit(const std::string& text) {
  const std::size_t at = text.rfind('@');
  const bool limited = at != std::string::npos && !is_path(text.substr(at));
  return limited ? std::pair{text.substr(0, at), text.substr(at + 1)} : std::pair{text, std::string()};
}

}  // namespace

Cluster parse_cluster(const std::string& said) {
  if (const auto [boards, limit] = split_limit(said); !limit.empty()) return held_to(parse_cluster(boards), parse_watts(limit), said);
  const std::string& text = said;
  if (text.empty()) fail("no cluster is given", {}, "8xmi300x, 16x8xh100-sxm, a cluster's name or a JSON file");
  if (is_path(text)) return counted_from_file(text);
  const auto clusters = shipped_clusters();
  if (std::find(clusters.begin(), clusters.end(), lower(text)) != clusters.end()) return shipped_cluster(lower(text));
  std::string_view rest = text;
  const std::int64_t first = take_count(rest);
  const std::int64_t second = first > 0 ? take_count(rest) : 0;
  const std::string device(rest);
  if (device.empty()) fail("'" + text.substr(0, 64) + "' counts devices and names none", {}, "8xmi300x");
  if (second == 0) return cluster_of(device, std::max<std::int64_t>(first, 1), 0, text);
  if (second > kMostGpus / first) fail(text + " is no sensible number of GPUs", {}, "1 to " + with_thousands(kMostGpus));
  return cluster_of(device, first * second, static_cast<int>(second), text);
}

}  // namespace plimsoll

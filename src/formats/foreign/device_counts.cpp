// How many devices a launcher counts: hostfiles, DeepSpeed's filters of them, and what a run's environment says.
#include <algorithm>

#include "formats/foreign/keys.hpp"
#include "formats/foreign/launch.hpp"
#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kVisible = "env.visible_devices";

/// Parts of a text between signs.
std::vector<std::string> parts_of(const std::string& text, char sign) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(sign, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// A host and the devices of it that are used, by index.
struct Host {
  std::string name;
  std::vector<std::int64_t> slots;
};

std::int64_t slot_of(const std::string& text, const std::string& where) {
  const bool number = !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
  if (!number) fail("expected a device's index, found '" + text.substr(0, 40) + "'", where, "for example --include localhost:0,1,2,3");
  return std::atoll(text.c_str());
}

std::vector<Host> read_hosts(const Reading& reading, const Node& named) {
  const std::string path = reading.located(named.text, named);
  if (!reading.has_file(path))
    fail("the hostfile " + readable(named.text).substr(0, 100) + " is not there", named.where,
         "give it beside the script: a line each, host slots=8");
  std::vector<Host> hosts;
  int number = 0;
  for (const std::string& line : parts_of(reading.text_of(path), '\n')) {
    ++number;
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    const std::size_t given = line.find("slots=");
    const std::string place = path + ":" + std::to_string(number);
    if (given == std::string::npos) fail("expected \"host slots=8\", found \"" + line.substr(0, 60) + "\"", place);
    const std::string digits = line.substr(given + 6, line.find_first_not_of("0123456789", given + 6) - given - 6);
    constexpr std::int64_t kMostSlots = 1024;
    const std::int64_t slots = digits.empty() || digits.size() > 6 ? 0 : std::atoll(digits.c_str());
    if (slots < 1 || slots > kMostSlots) fail("a host has 1 to 1024 devices, found \"" + line.substr(0, 60) + "\"", place);
    Host host{line.substr(first, line.find_first_of(" \t", first) - first), {}};
    for (std::int64_t i = 0; i < slots; ++i) host.slots.push_back(i);
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) fail("names no host", path, "a line each: host slots=8");
  return hosts;
}

Ranks ranks_of(const std::vector<Host>& hosts, const std::string& told, const std::string& where) {
  Ranks ranks{static_cast<std::int64_t>(hosts.size()), static_cast<std::int64_t>(hosts.empty() ? 0 : hosts.front().slots.size()), told};
  for (const Host& host : hosts)
    if (static_cast<std::int64_t>(host.slots.size()) != ranks.per_node)
      refuse("nodes with different numbers of GPUs are not modelled", where);
  return ranks;
}

/// "worker-0@worker-1:0,2": hosts, with devices or whole (deepspeed/launcher/runner.py: parse_resource_filter).
std::vector<Host> filter_of(const std::string& text, const std::string& where) {
  std::vector<Host> hosts;
  for (const std::string& node : parts_of(text, '@')) {
    const std::size_t colon = node.find(':');
    Host host{node.substr(0, colon), {}};
    if (colon != std::string::npos)
      for (const std::string& slot : parts_of(node.substr(colon + 1), ',')) host.slots.push_back(slot_of(slot, where));
    std::sort(host.slots.begin(), host.slots.end());
    host.slots.erase(std::unique(host.slots.begin(), host.slots.end()), host.slots.end());
    hosts.push_back(std::move(host));
  }
  return hosts;
}

std::vector<Host> included(const std::vector<Host>& all, const std::vector<Host>& filter, const std::string& where) {
  std::vector<Host> kept;
  for (const Host& one : filter) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Host& host) { return host.name == one.name; });
    if (found == all.end()) fail("the hostfile has no host '" + one.name.substr(0, 60) + "'", where);
    kept.push_back(one.slots.empty() ? *found : one);
  }
  return kept;
}

std::vector<Host> excluded(std::vector<Host> all, const std::vector<Host>& filter) {
  for (const Host& one : filter)
    for (Host& host : all)
      if (host.name == one.name)
        std::erase_if(host.slots, [&](std::int64_t slot) {
          return one.slots.empty() || std::find(one.slots.begin(), one.slots.end(), slot) != one.slots.end();
        });
  std::erase_if(all, [](const Host& host) { return host.slots.empty(); });
  return all;
}

/// The value of one of deepspeed's own options; nullptr: it is not given.
const Node* option_of(const std::vector<Node>& words, std::size_t end, std::initializer_list<const char*> names, Node& joined) {
  for (std::size_t i = 1; i < end; ++i)
    for (const std::string name : names) {
      if (words[i].text == name && i + 1 < end) return &words[i + 1];
      if (words[i].text.compare(0, name.size() + 1, name + "=") != 0) continue;
      joined = Node::scalar(words[i].text.substr(name.size() + 1), words[i].where);
      return &joined;
    }
  return nullptr;
}

/// PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:512
void read_allocator(Reading& reading, const std::string& name, const std::string& value, const std::string& where) {
  static const Rows rows = {{"expandable_segments", "allocator.expandable_segments", "True=true,False=false"},
                            {"max_split_size_mb", "allocator.max_split_size_mb"},
                            {"roundup_power2_divisions", "allocator.roundup_power2_divisions"},
                            {"garbage_collection_threshold", "allocator.garbage_collection_threshold"},
                            {"backend", kRefused, "native", nullptr, "another allocator than PyTorch's own"}};
  Node tree = Node::table(where);
  for (std::size_t at = 0; at < value.size();) {
    const std::size_t end = std::min(value.find(',', at), value.size()), colon = value.find(':', at);
    if (colon < end) tree.set(value.substr(at, colon - at), Node::scalar(value.substr(colon + 1, end - colon - 1), where));
    at = end + 1;
  }
  read_rows(reading, rows, tree, name + " ");
}

}  // namespace

std::int64_t visible_devices(const Reading& reading) { return reading.has(kVisible) ? reading.count(kVisible) : 0; }

void read_environment(Reading& reading, const std::string& name, const std::string& value, const std::string& where) {
  if (is_unknown(value)) return;
  if (name == "CUDA_VISIBLE_DEVICES" || name == "HIP_VISIBLE_DEVICES" || name == "ROCR_VISIBLE_DEVICES") {
    std::int64_t seen = 0;
    for (const std::string& one : parts_of(value, ',')) {
      if (one.empty() || one == "-1" || one == "NoDevFiles") break;  // CUDA sees those in front of the first that is none
      ++seen;
    }
    if (seen > 0) reading.overriding([&] { reading.say(kVisible, std::to_string(seen), name, where); });
    return;
  }
  if (name == "NPROC_PER_NODE" || name == "NNODES") {  // read by launchers that run torchrun themselves
    const std::string key = name == "NNODES" ? "env.nnodes" : "env.nproc_per_node";
    return reading.overriding([&] { reading.say(key, value, name, where); });
  }
  if (name != "PYTORCH_CUDA_ALLOC_CONF" && name != "PYTORCH_HIP_ALLOC_CONF" && name != "PYTORCH_ALLOC_CONF") return;
  read_allocator(reading, name, value, where);
}

Ranks hostfile_ranks(const Reading& reading, const Node& file) { return ranks_of(read_hosts(reading, file), "hostfile", file.where); }

/// As deepspeed/launcher/runner.py's main() does, of DeepSpeed 0.19.
Ranks deepspeed_ranks(Reading& reading, const std::vector<Node>& words, const LaunchLine& line) {
  Node joined[3];
  const std::size_t end = words.size();
  const Node *file = option_of(words, end, {"-H", "--hostfile"}, joined[0]),
             *include = option_of(words, end, {"-i", "--include"}, joined[1]),
             *exclude = option_of(words, end, {"-e", "--exclude"}, joined[2]);
  const std::string where = words.front().where;
  if ((include || exclude) && (line.nodes > 0 || line.processes_per_node > 0))
    fail("deepspeed takes no --include or --exclude beside --num_gpus or --num_nodes", where, "leave one of them out");
  // Where the path is no regular file the launcher goes on with its own machine (fetch_hostfile), and this one never is.
  if (file && file->text != "/dev/null") {
    std::vector<Host> hosts = read_hosts(reading, *file);
    if (include) hosts = included(hosts, filter_of(include->text, include->where), include->where);
    if (exclude) hosts = excluded(std::move(hosts), filter_of(exclude->text, exclude->where));
    if (line.nodes > 0 && static_cast<std::size_t>(line.nodes) < hosts.size()) hosts.resize(static_cast<std::size_t>(line.nodes));
    Ranks ranks = ranks_of(hosts, "hostfile", file->where);
    if (line.processes_per_node > 0) ranks.per_node = line.processes_per_node;
    return ranks;
  }
  if (exclude)
    fail("how many devices --exclude " + exclude->text.substr(0, 60) + " leaves is the machine's to say", exclude->where,
         "say those that are used: --include localhost:0,1,2,3");
  if (include) return ranks_of(filter_of(include->text, include->where), "--include", include->where);
  const bool seen = line.processes_per_node == 0 && line.nodes <= 1 && visible_devices(reading) > 0;
  return {std::max<std::int64_t>(1, line.nodes), seen ? visible_devices(reading) : line.processes_per_node,
          seen ? "VISIBLE_DEVICES" : "deepspeed"};
}

void say_ranks(Reading& reading, const Ranks& ranks, const std::string& where) {
  if (ranks.nodes > 0) reading.say("cluster.nodes", std::to_string(ranks.nodes), ranks.told, where);
  if (ranks.per_node > 0) reading.say("cluster.gpus_per_node", std::to_string(ranks.per_node), ranks.told, where);
}

void derive_ranks(Reading& reading) {
  if (reading.has("cluster.gpus_per_node") || reading.has("gpus")) return;
  if (const ForeignKey* seen = reading.find(kVisible))
    return reading.derive("cluster.gpus_per_node", seen->value, "a rank per device of " + seen->foreign);
  if (reading.has("slurm.gpus_per_node"))
    reading.derive("cluster.gpus_per_node", reading.value("slurm.gpus_per_node"), "a rank per GPU of the job");
}

}  // namespace plimsoll::formats

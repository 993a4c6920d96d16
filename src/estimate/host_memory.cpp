#include "estimate/host_memory.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "plimsoll/units.hpp"

namespace plimsoll::estimation {
namespace {

/// Of a host's memory, what the kernel, its page cache and the processes themselves leave to tensors: of runs that people published, those
/// above died or were called the most that goes.
constexpr double kTight = 0.9;

std::int64_t ranks_of_a_host(const Cluster& cluster, const Strategy& s) {
  const int per_host = cluster.node.gpus_per_host > 0 ? std::min(cluster.node.gpus_per_host, cluster.gpus_per_node) : cluster.gpus_per_node;
  return std::min<std::int64_t>(s.gpus, per_host);
}

/// The ranks of a host stand side by side in a pipeline's order of stages at worst: as many of the fullest stage as there are.
Bytes kept_together(const std::vector<RankReport>& ranks, std::int64_t on_host) {
  std::vector<std::pair<Bytes, std::int64_t>> by_size;
  for (const RankReport& rank : ranks) by_size.emplace_back(rank.host, rank.count);
  std::sort(by_size.begin(), by_size.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  Bytes kept;
  for (const auto& [bytes, count] : by_size) {
    const std::int64_t taken = std::min(count, on_host);
    kept += Bytes(bytes.count * taken);
    on_host -= taken;
  }
  return kept;
}

/// One copy of a checkpoint as it is read, in the type of its weights.
Bytes copy_of(const Model& model, const Strategy& s) {
  return Bytes(model.parameters() * static_cast<std::int64_t>(size_of(s.param_dtype.value_or(DType::fp32))));
}

Bytes loading_of(const Model& model, const Strategy& s, std::int64_t on_host) {
  switch (s.host_loading) {
    case HostLoading::every_rank:
      return Bytes(copy_of(model, s).count * on_host);
    case HostLoading::first_rank:
      return copy_of(model, s);
    default:
      return {};
  }
}

std::optional<Bytes> capacity_of(const Cluster& cluster, const Strategy& s) {
  if (s.host_memory) return s.host_memory;
  if (cluster.node.host_memory) return cluster.node.host_memory->value;
  return {};
}

Verdict verdict_of_host(Bytes most, Bytes capacity) {
  const double share = static_cast<double>(most.count) / static_cast<double>(capacity.count);
  return share > 1 ? Verdict::does_not_fit : share > kTight ? Verdict::tight : Verdict::fits;
}

}  // namespace

HostMemory host_memory_of(const std::vector<RankReport>& ranks, const Model& model, const Cluster& cluster, const Strategy& resolved) {
  HostMemory host;
  host.ranks = ranks_of_a_host(cluster, resolved);
  host.kept = kept_together(ranks, host.ranks);
  host.loading = loading_of(model, resolved, host.ranks);
  host.capacity = capacity_of(cluster, resolved);
  if (host.capacity) host.verdict = verdict_of_host(host.most(), *host.capacity);
  return host;
}

std::vector<std::string> host_notes(const HostMemory& host, const Model& model, const Cluster& cluster, const Strategy& s) {
  std::vector<std::string> notes;
  const std::string of = host.capacity ? " of " + to_string(*host.capacity) : std::string();
  if (host.most() > Bytes(0) && !host.capacity)
    notes.push_back(fmt::format("host: {} ranks keep {} together, and the file of {} does not say what a host has: give --host-memory", host.ranks,
                                to_string(host.most()), cluster.name));
  if (host.verdict == Verdict::does_not_fit)
    notes.push_back(fmt::format("host: {} ranks ask for {}{}: the kernel kills one of them, without an error of the device",
                                host.ranks, to_string(host.most()), of));
  if (host.verdict == Verdict::tight)
    notes.push_back(fmt::format("host: {} ranks ask for {}{}, beside their own processes, the page cache and workers of loaders", host.ranks,
                                to_string(host.most()), of));
  const Bytes copies(copy_of(model, s).count * host.ranks);
  if (s.host_loading == HostLoading::automatic && host.capacity && host.ranks > 1 && copies > *host.capacity)
    notes.push_back(fmt::format("host: {} ranks that each read the whole checkpoint hold {}{} before the first step; with one that reads "
                                "(cpu_ram_efficient_loading, sync_module_states) it is {}",
                                host.ranks, to_string(copies), of, to_string(copy_of(model, s))));
  return notes;
}

}  // namespace plimsoll::estimation

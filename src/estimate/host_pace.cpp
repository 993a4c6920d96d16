#include "estimate/host_pace.hpp"

#include <algorithm>
#include <vector>

#include "estimate/rank_groups.hpp"
#include "framework/nanotron.hpp"
#include "hardware/read_values.hpp"
#include "play/host_slowdown.hpp"
#include "plimsoll/cost.hpp"
#include "program/lower.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::estimation {
namespace {

/// hardware/hosts.json.
struct HostPace {
  Seconds collective, collective_across_nodes;  ///< of the host; of the device at least, in a group across nodes
  Seconds meeting, meeting_per_rank;            ///< of the host where the hosts of a group meet at every collective
  Seconds meeting_per_far_rank;                 ///< the same of ranks on other nodes
  Seconds message;                              ///< of a pipeline whose ranks wait for what they send
  std::int64_t late_peer_micro_batches = 0;     ///< of a step in which some peer is late
  std::int64_t filling_micro_batches = 0;       ///< of a step that fills the launch queue, however little the host is quicker
};

std::int64_t read_micro_batches(const JsonValue& object) {
  constexpr std::int64_t kMost = 1 << 20;
  hardware::read_provenance(object["provenance"]);
  if (const auto note = object.find("note")) note->mark_read();
  object["source"].mark_read();
  return object["value"].integer(1, kMost);
}

HostPace read_host_pace() {
  const JsonDocument document = hardware::shipped_document("hardware/hosts.json");
  const JsonValue root = document.root();
  const JsonValue nanotron = root["nanotron"];
  const auto seconds = [&](const char* key) { return hardware::read_sourced(nanotron[key], hardware::seconds_value).value; };
  HostPace pace;
  pace.collective = seconds("collective");
  pace.collective_across_nodes = seconds("collective_across_nodes");
  pace.meeting = seconds("meeting");
  pace.meeting_per_rank = seconds("meeting_per_rank");
  pace.meeting_per_far_rank = seconds("meeting_per_far_rank");
  pace.message = seconds("message");
  pace.late_peer_micro_batches = read_micro_batches(nanotron["late_peer_micro_batches"]);
  pace.filling_micro_batches = read_micro_batches(nanotron["filling_micro_batches"]);
  return pace;
}

/// Read once: every rank of every estimate asks.
const HostPace& host_pace() {
  static const HostPace pace = read_host_pace();
  return pace;
}

/// hardware/hosts.json, "software": what a host takes `slowdown` times as long for, of these frameworks under releases of a package before one.
struct SlowSoftware {
  std::vector<std::string> frameworks;
  Package package;
  Release before;
  double slowdown;

  bool runs(const Strategy& resolved) const {
    return resolved.releases.of(package) < before &&
           std::find(frameworks.begin(), frameworks.end(), resolved.framework) != frameworks.end();
  }
};

std::vector<SlowSoftware> read_slow_software() {
  const JsonDocument document = hardware::shipped_document("hardware/hosts.json");
  std::vector<SlowSoftware> all;
  for (const JsonValue& each : document.root()["software"].elements()) {
    const auto [package, before] = parse_release(each["package"].text(), each["before"].text(), "hardware/hosts.json");
    all.push_back({{}, package, before, hardware::read_sourced(each["slowdown"], hardware::pace_value).value});
    for (const JsonValue& framework : each["frameworks"].elements()) all.back().frameworks.push_back(framework.text());
  }
  return all;
}

std::vector<double> kernel_prices(const StepProgram& program, const Accelerator& device) {
  std::vector<double> seconds;
  for (const Kernel& kernel : program.kernels) seconds.push_back(price(kernel, device).value);
  return seconds;
}

/// Share of the device's time by which its host is quicker; 0: it is not.
struct HostLead {
  double mean = 0;  ///< over all passes
  double most = 0;  ///< over the forward passes or the backward ones, whichever is more
};

HostLead host_lead(const StepProgram& program, const Cluster& cluster, const Strategy& resolved, bool hosts_meet) {
  if (resolved.tp == 1) return {};  // what a pipeline alone marks as used elsewhere, its messages, is done by the time it is freed
  const HostPace& pace = host_pace();
  const GroupShape tensor = group_shapes(resolved, Topology(cluster))[static_cast<std::size_t>(Group::tensor)];
  const double host_seconds = hosts_meet ? pace.meeting.value + pace.meeting_per_rank.value * resolved.tp : pace.collective.value;
  const std::vector<double> kernel_seconds = kernel_prices(program, cluster.accelerator);
  double device[2] = {}, host[2] = {};  // seconds: forward, backward
  bool backward = false;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::phase) {
      const auto phase = static_cast<Phase>(instruction.id);
      if (phase == Phase::optimizer) break;
      backward = phase == Phase::backward;
    }
    if (instruction.kind == InstructionKind::kernel) device[backward] += kernel_seconds[instruction.id];
    if (instruction.kind != InstructionKind::collective || program.collectives[instruction.id].group != Group::tensor) continue;
    device[backward] += price(program.collectives[instruction.id], tensor, cluster).value;
    host[backward] += host_seconds;
  }
  if (device[0] + device[1] <= 0) return {};  // a stage without layers
  HostLead lead;
  lead.mean = std::max(0.0, 1 - (host[0] + host[1]) / (device[0] + device[1]));
  lead.most = !hosts_meet && tensor.nodes > 1 ? 1 - host_seconds / pace.collective_across_nodes.value : 0;
  for (int i = 0; i < 2; ++i) {
    if (device[i] > 0) lead.most = std::max(lead.most, 1 - host[i] / device[i]);
  }
  return lead;
}

/// Entries of the launch queue that a step's passes take: PlayMemoryOptions::launches_behind.
std::int64_t entries_of_passes(const StepProgram& program) {
  std::int64_t entries = 0;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::phase && static_cast<Phase>(instruction.id) == Phase::optimizer) break;
    if (instruction.kind == InstructionKind::kernel || instruction.kind == InstructionKind::copy) ++entries;
    if (instruction.kind == InstructionKind::collective) entries += 3;
  }
  return entries;
}

}  // namespace

void set_launches_behind(PlayMemoryOptions& options, const StepProgram& program, const Cluster& cluster, const Strategy& resolved) {
  const HostPace& pace = host_pace();
  options.launches_behind = program::nanotron_launch_queue();
  const bool hosts_meet = cluster.nodes > 1 && framework::nanotron_hosts_meet(resolved);
  const HostLead lead = host_lead(program, cluster, resolved, hosts_meet);
  if (resolved.pp > 1 && framework::nanotron_waits_for_sends(resolved)) {
    // Each pass begins with a device that has nothing to do. Of the sweep's runs of this pipeline none went through that had to give
    // segments back (all did of the one after it): why is not known.
    options.shortage_is_fatal = true;
    options.behind_in_stalls_only = lead.mean <= 0;
    if (lead.mean > 0) options.lead = lead.mean;
    return;
  }
  const bool often_late = resolved.pp == 1 && !hosts_meet && resolved.micro_batches >= pace.late_peer_micro_batches;
  options.behind_in_stalls_only = !often_late && lead.most <= 0;
  if (options.behind_in_stalls_only || resolved.micro_batches >= pace.filling_micro_batches) return;
  // A queue fills by what the host is quicker, in a pipeline from receive to receive.
  const std::int64_t passes = resolved.pp > 1 ? resolved.micro_batches : 1;
  const std::int64_t entries = entries_of_passes(program) / passes;
  const double reached = lead.most * static_cast<double>(entries);
  options.launches_behind = std::clamp(static_cast<std::int64_t>(reached), std::int64_t{1}, options.launches_behind);
}

void set_software_pace(Pricing& pricing, const Strategy& resolved) {
  static const std::vector<SlowSoftware> all = read_slow_software();
  for (const SlowSoftware& each : all)
    if (each.runs(resolved)) slow_down(pricing.host, each.slowdown);
}

void set_nanotron_pace(Pricing& pricing, const Strategy& resolved) {
  const HostPace& pace = host_pace();
  const bool meet = pricing.cluster.nodes > 1 && framework::nanotron_hosts_meet(resolved);
  for (std::size_t i = 0; meet && i < kGroups; ++i) {
    const GroupShape& group = pricing.groups[i];
    const double near = static_cast<double>(group.per_node), far = static_cast<double>(group.size - group.per_node);
    if (group.size > 1) pricing.meeting[i] = pace.meeting + near * pace.meeting_per_rank + far * pace.meeting_per_far_rank;
  }
  Seconds& messages = pricing.meeting[static_cast<std::size_t>(Group::pipeline)];
  messages = {};
  if (resolved.pp > 1 && framework::nanotron_waits_for_sends(resolved)) messages = pace.message;
}

}  // namespace plimsoll::estimation

// Recordings priced and played: the report that `estimate` gives, of a program that really ran.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "memory/outside.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/rehearse.hpp"
#include "plimsoll/topology.hpp"
#include "play/other_devices.hpp"
#include "rehearse/joint_recordings.hpp"

namespace plimsoll {
namespace {

std::vector<memory::ProcessGroup> communicating(const Recording& recording) {
  std::vector<memory::ProcessGroup> groups;
  for (const RecordedGroup& group : recording.groups) {
    if (group.size < 2) continue;
    const std::int64_t peers = group.group == Group::pipeline ? std::min<std::int64_t>(2, group.size - 1)
                               : group.group == Group::expert ? group.size - 1
                                                              : 0;
    groups.push_back({group.size, peers});
  }
  return groups;
}

RankMemory memory_of(const Recording& recording, const Cluster& cluster) {
  const memory::OutsideAllocator outside = memory::outside_allocator(cluster.accelerator, communicating(recording));
  RankMemory memory;
  memory.basis = Basis::played;
  memory.allocated = recording.peak_allocated();
  memory.reserved = recording.peak_reserved();
  memory.capacity = cluster.accelerator.memory_usable.value;
  if (!recording.steps.empty()) {
    memory.first_step_allocated = recording.steps.front().peak_allocated;
    memory.persistent = recording.steps.back().allocated;
  }
  const auto with = [&](Bytes bytes) { return static_cast<double>((memory.reserved + bytes).count); };
  memory.device = {with(outside.total().low), with(outside.total().expected), with(outside.total().high)};
  const Bytes communicators = outside.total().expected - outside.context.expected;
  if (recording.has_blocks && !recording.program.step.empty()) {
    PlayMemoryOptions options;
    options.steps = 2;
    const MemoryTrace trace = play_memory(recording.program, options);
    Bytes named;
    for (int i = 0; i < kCategories; ++i) {
      const auto category = static_cast<Category>(i);
      if (trace.at_peak[category] == Bytes(0)) continue;
      memory.parts.push_back({std::string(name_of(category)), trace.at_peak[category], Basis::played});
      named += trace.at_peak[category];
    }
    memory.peak_phase = trace.peak_phase;
    memory.peak_label = trace.peak_label;
    memory.backward_peak = trace.backward_peak;
    if (named != memory.allocated) memory.parts.push_back({"other_tensors", memory.allocated - named, Basis::played});
  } else {
    memory.parts.push_back({"tensors", memory.allocated, Basis::played});
  }
  memory.parts.push_back({"allocator_cache", memory.reserved - memory.allocated, Basis::played});
  memory.parts.push_back({"context", outside.context.expected, Basis::profile});
  if (communicators > Bytes(0)) memory.parts.push_back({"communicators", communicators, Basis::profile});
  std::stable_sort(memory.parts.begin(), memory.parts.end(), [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
  if (recording.out_of_memory) {
    memory.out_of_memory = true;
    memory.out_of_memory_at = fmt::format(
        "{}, asking for {}", recording.steps.empty() ? "the first step or before" : fmt::format("step {}", recording.steps.size() + 1),
        to_string(recording.out_of_memory->requested));
  }
  return memory;
}

/// Kernels, collectives and copies of the step by name, with the time they took when it was played.
std::vector<KernelTime> kernel_table(const Recording& recording, const Timeline& timeline) {
  const StepProgram& program = recording.program;
  std::map<std::pair<std::string, int>, KernelTime> table;
  for (const Event& event : timeline.events) {
    const Instruction& instruction = program.step[event.instruction];
    KernelTime entry;
    entry.name = program.labels[instruction.label];
    entry.collective = instruction.kind == InstructionKind::collective;
    entry.copy = instruction.kind == InstructionKind::copy;
    KernelTime& sum = table.try_emplace({entry.name, static_cast<int>(instruction.kind)}, entry).first->second;
    ++sum.calls;
    sum.seconds += event.end - event.start;
    if (instruction.kind != InstructionKind::kernel) continue;
    sum.kind = program.kernels[instruction.id].kind();
    sum.flops += program.kernels[instruction.id].flops();
    sum.bytes_known = sum.bytes_known && recording.bytes_known[instruction.id];
  }
  std::vector<KernelTime> rows;
  for (auto& [key, row] : table) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const KernelTime& a, const KernelTime& b) { return b.seconds < a.seconds; });
  return rows;
}

/// That a rank's process works on.
std::int64_t devices_of(const Recording& recording) { return recording.device ? static_cast<std::int64_t>(recording.devices.size()) : 1; }

TimeReport time_of(const Recording& recording, const Timeline& timeline) {
  TimeReport time;
  time.step_seconds = Band::exactly(timeline.step.value);
  if (timeline.step > Seconds(0))
    time.tokens_per_second_per_gpu = static_cast<double>(recording.tokens) / timeline.step.value / static_cast<double>(devices_of(recording));
  time.breakdown = {{"compute", timeline.compute},
                    {"recompute", timeline.recompute},
                    {"optimizer", timeline.optimizer},
                    {"exposed_communication", timeline.exposed_communication()},
                    {"bubble", timeline.bubble},
                    {"exposed_copies", timeline.exposed_copies},
                    {"host", timeline.host},
                    {"host_optimizer", timeline.host_optimizer}};
  return time;
}

/// The work of the step over the device's peak; without a model's description there is no other convention.
FlopsReport flops_of(const Recording& recording, const Timeline& timeline, const Cluster& cluster) {
  FlopsReport report;
  double flops = 0;
  for (const Instruction& instruction : recording.program.step)
    if (instruction.kind == InstructionKind::kernel) flops += recording.program.kernels[instruction.id].flops();
  report.peak_flops_per_second = cluster.accelerator.peak(MathType::bf16).value;
  if (recording.tokens > 0) report.hardware_flops_per_token = flops / static_cast<double>(recording.tokens);
  if (timeline.step > Seconds(0))
    report.hfu = flops / timeline.step.value / report.peak_flops_per_second / static_cast<double>(devices_of(recording));
  return report;
}

Verdict verdict_of(const RankReport& rank) {
  if (rank.memory.out_of_memory) return Verdict::does_not_fit;
  const double capacity = static_cast<double>(rank.memory.capacity.count);
  if (rank.memory.device.expected > capacity) return Verdict::does_not_fit;
  return rank.memory.device.high > capacity ? Verdict::tight : Verdict::fits;
}

std::string remark_line(const char* lead, const RecordedRemark& remark) {
  return remark.times > 1 ? fmt::format("{} {} ({} times)", lead, remark.what, remark.times) : fmt::format("{} {}", lead, remark.what);
}

/// What to say where the last step that was followed reserved more than any before it: later ones may reserve more still. A second step
/// always may, since it is the first with the optimizer's states.
std::string growth_of(const Recording& recording) {
  if (recording.steps.size() < 3) return {};
  const Bytes last = recording.steps.back().peak_reserved;
  Bytes before;
  for (std::size_t i = 0; i + 1 < recording.steps.size(); ++i) before = std::max(before, recording.steps[i].peak_reserved);
  if (last <= before) return {};
  return fmt::format(
      "reserved memory still grew in step {}, the last that was followed, from {} to {}: --steps {} follows more, --until-peak until it "
      "recurs",
      recording.steps.size(), to_string(before), to_string(last), 5 * recording.steps.size());
}

/// What the step's time has of other ranks.
std::string note_on(const rehearse::JointPlay& joint) {
  if (!joint.timelines.empty()) return "all ranks' steps were played together: each waits for what others send, and for the last of a collective";
  if (joint.why_alone.empty()) return {};
  return "what a stage receives is taken to be there when it asks: the pipeline's bubble is not in the step (" + joint.why_alone + ")";
}

std::vector<std::string> notes_of(const Recording& recording, const std::vector<KernelTime>& kernels, const std::string& on_ranks) {
  std::vector<std::string> notes;
  notes.push_back("rehearsed: a device that computes nothing stood for the GPU; memory is the framework's own allocator's, time is priced");
  if (const std::string growth = growth_of(recording); !growth.empty()) notes.push_back(growth);
  for (const RecordedActivity& each : recording.activities)
    if (each.peak_allocated > recording.peak_allocated())
      notes.push_back(fmt::format("{} reached {} allocated, more than the steps", each.name, to_string(each.peak_allocated)));
  if (!on_ranks.empty()) notes.push_back(on_ranks);
  for (const std::string& each : recording.left_out) notes.push_back("no time is counted for " + each);
  for (const RecordedRemark& remark : recording.replaced) notes.push_back(remark_line("replaced:", remark));
  for (const RecordedRemark& remark : recording.read) notes.push_back(remark_line("read, and not computed here:", remark));
  for (const RecordedRemark& remark : recording.notes) notes.push_back(remark_line("note:", remark));
  for (const RecordedRemark& remark : recording.unmodelled) notes.push_back(remark_line("called, without behaviour here:", remark));
  Seconds unknown, all;
  for (const KernelTime& row : kernels) {
    all += row.seconds;
    if (!row.bytes_known) unknown += row.seconds;
  }
  if (unknown > Seconds(0))
    notes.push_back(
        fmt::format("{:.0f} % of the priced time is of kernels whose traffic is counted by their threads: neither name nor grid tells it",
                    100 * (unknown / all)));
  if (!recording.has_blocks)
    notes.push_back("the framework's allocator was not recorded: allocated bytes are unknown, reserved bytes are the device's segments");
  return notes;
}

std::vector<Origin> provenance_of(const Cluster& cluster) {
  const Accelerator& device = cluster.accelerator;
  return {{"memory.allocated_bytes", Provenance::rehearsed, "the framework's own allocator on a device that computes nothing"},
          {"memory.reserved_bytes", Provenance::rehearsed, "segments of the framework's own allocator"},
          {"memory.capacity_bytes", device.memory_usable.provenance, device.memory_usable.source},
          {"memory.categories.context", device.overheads.context.provenance, device.overheads.context.source},
          {"memory.categories.communicators", device.overheads.first_communicator.provenance, device.overheads.first_communicator.source},
          {"time.step_seconds", Provenance::derived, "rehearsed launches, priced and played on their streams"}};
}

bool same_program(const Recording& a, const Recording& b) {
  return a.peak_allocated() == b.peak_allocated() && a.peak_reserved() == b.peak_reserved() && !a.steps.empty() && !b.steps.empty() &&
         a.steps.back().work.launches == b.steps.back().work.launches && a.steps.back().work.gemm_flops == b.steps.back().work.gemm_flops &&
         a.out_of_memory.has_value() == b.out_of_memory.has_value();
}

/// The largest device margin first decides; what ran out of memory is worse than anything that did not.
std::size_t worst_of(const std::vector<RankReport>& ranks) {
  std::size_t worst = 0;
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const bool failed = ranks[i].memory.out_of_memory, worst_failed = ranks[worst].memory.out_of_memory;
    if (failed != worst_failed ? failed : ranks[i].memory.margin() < ranks[worst].memory.margin()) worst = i;
  }
  return worst;
}

Timeline alone(const Recording& recording, const Cluster& cluster) {
  if (recording.program.step.empty()) return {};
  return play_time(recording.program, pricing_of(recording, cluster), recording.elsewhere);
}

}  // namespace

Pricing pricing_of(const Recording& recording, const Cluster& cluster) {
  std::array<GroupShape, kGroups> groups{};
  const Topology topology(cluster);
  for (const RecordedGroup& group : recording.groups) {
    if (group.size < 2) continue;
    GroupShape& shape = groups[static_cast<std::size_t>(group.group)];
    const bool regular = group.ranks.size() > 1;
    const std::int64_t stride = regular ? group.ranks[1] - group.ranks[0] : 1;
    const std::int64_t last = regular ? group.ranks.back() : group.size - 1;
    if (last >= cluster.gpus())
      fail(fmt::format("the program has a group with rank {}, and {} has {} GPUs", last, cluster.name, cluster.gpus()), "--on",
           "give the cluster that the program was launched for");
    shape = topology.group({regular ? group.ranks.front() : 0, group.size, std::max<std::int64_t>(1, stride)});
  }
  const std::vector<Instruction>& step = recording.program.step;
  const bool counted = std::any_of(step.begin(), step.end(), [](const Instruction& each) {
    return each.kind == InstructionKind::host && static_cast<HostWork>(each.id) != HostWork::memory_traffic;
  });
  return pricing_of(cluster, groups, counted ? "all" : "recorded");
}

Rehearsal rehearsal_of(std::vector<Recording> recordings, const Cluster& cluster) {
  if (recordings.empty()) fail("there is no recording to report on", "rehearse");
  Rehearsal rehearsal;
  Report& report = rehearsal.report;
  rehearse::JointPlay joint = rehearse::play_joint(recordings, cluster);
  for (std::size_t i = 0; i < recordings.size(); ++i) {
    Recording& recording = recordings[i];
    const auto same = std::find_if(rehearsal.recordings.begin(), rehearsal.recordings.end(),
                                   [&](const Recording& known) { return same_program(known, recording); });
    if (same != rehearsal.recordings.end()) {
      ++report.ranks[static_cast<std::size_t>(same - rehearsal.recordings.begin())].count;
      continue;
    }
    RankReport rank;
    rank.stage = static_cast<std::int64_t>(report.ranks.size());
    rank.parameters = recording.parameters;
    rank.memory = memory_of(recording, cluster);
    if (!recording.steps.empty()) rank.work = recording.steps.back().work;
    report.ranks.push_back(std::move(rank));
    rehearsal.timelines.push_back(joint.timelines.empty() ? alone(recording, cluster) : joint.timelines[i]);
    rehearsal.kernels.push_back(kernel_table(recording, rehearsal.timelines.back()));
    rehearsal.recordings.push_back(std::move(recording));
  }
  report.worst = worst_of(report.ranks);
  const Recording& worst = rehearsal.recordings[report.worst];
  std::size_t slowest = 0;
  for (std::size_t i = 1; i < rehearsal.timelines.size(); ++i)
    if (rehearsal.timelines[slowest].step < rehearsal.timelines[i].step) slowest = i;
  report.model_name = worst.model.empty() ? "the rehearsed program" : worst.model;
  report.cluster_name = cluster.name;
  report.gpus = worst.world * devices_of(worst);
  report.parameters = report.active_parameters = worst.parameters;
  report.verdict = verdict_of(report.worst_rank());
  report.time = time_of(rehearsal.recordings[slowest], rehearsal.timelines[slowest]);
  report.flops = flops_of(rehearsal.recordings[slowest], rehearsal.timelines[slowest], cluster);
  report.strategy = fmt::format("rehearsed, world of {}, rank {}", worst.world, worst.rank);
  if (worst.device) report.strategy += fmt::format(", device {} of its {}", *worst.device, worst.devices.size());
  for (const auto& [name, version] : worst.versions) report.strategy += fmt::format(", {} {}", name, version);
  report.notes = notes_of(worst, rehearsal.kernels[report.worst], note_on(joint));
  report.provenance = provenance_of(cluster);
  return rehearsal;
}

}  // namespace plimsoll

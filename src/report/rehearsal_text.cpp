// What a rehearsal found, for a person.
#include <fmt/core.h>

#include <algorithm>

#include "plimsoll/report.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

constexpr int kBarWidth = 40;
constexpr std::size_t kLabelWidth = 24;
constexpr std::size_t kNameWidth = 58;

std::string row(const std::string& name, const std::string& value, double share) {
  return fmt::format("  {:<{}}{:>13}  {}\n", name, kLabelWidth, value, bar(share, kBarWidth));
}

/// " without the optimizer on the host", where no time is counted for that.
std::string without(const Recording& recording) {
  std::string text;
  for (const std::string& each : recording.left_out) text += (text.empty() ? " without " : ", ") + printable(each);
  return text;
}

std::string verdict_line(const Report& report, const Recording& recording) {
  const RankMemory& memory = report.worst_rank().memory;
  const char* words = report.verdict == Verdict::fits ? "fits" : report.verdict == Verdict::tight ? "tight" : "does not fit";
  if (memory.out_of_memory) return fmt::format("{}: out of memory on {} in {}\n", words, report.cluster_name, memory.out_of_memory_at);
  return fmt::format("{}: {:.1f} of {:.1f} GiB per GPU of {}, {} a step{}\n", words, memory.device.expected / 1073741824.0,
                     memory.capacity.gib(), report.cluster_name, to_string(Seconds(report.time.step_seconds.expected)), without(recording));
}

/// What the program reached beside its training.
std::string activities_section(const Recording& recording) {
  std::string text;
  for (const RecordedActivity& each : recording.activities)
    if (each.peak_allocated > Bytes(0))
      text += fmt::format("  {}: {} B allocated, {} B reserved at most\n", each.name, with_thousands(each.peak_allocated.count),
                          with_thousands(each.peak_reserved.count));
  return text;
}

std::string memory_section(const RankReport& rank) {
  const RankMemory& memory = rank.memory;
  const double capacity = static_cast<double>(memory.capacity.count);
  std::string text = "memory, the framework's own allocator\n";
  text += row("device", to_string(Bytes(static_cast<std::int64_t>(memory.device.expected))), memory.device.expected / capacity);
  for (const MemoryPart& part : memory.parts)
    if (part.bytes.count >= (1 << 10))
      text += row("  " + spoken(part.name), to_string(part.bytes), static_cast<double>(part.bytes.count) / capacity);
  text += fmt::format("  allocated {} B, reserved {} B; first step {} B, between steps {} B\n", with_thousands(memory.allocated.count),
                      with_thousands(memory.reserved.count), with_thousands(memory.first_step_allocated.count),
                      with_thousands(memory.persistent.count));
  if (!memory.peak_label.empty())
    text += wrapped("  ", fmt::format("peak in {}, at {}", name_of(memory.peak_phase), printable(memory.peak_label)));
  return text;
}

std::string out_of_memory_section(const Recording& recording) {
  if (!recording.out_of_memory) return {};
  const RecordedOutOfMemory& failed = *recording.out_of_memory;
  std::string text = fmt::format("\nout of memory: {} asked for, {} allocated, {} reserved\n", to_string(failed.requested),
                                 to_string(failed.allocated), to_string(failed.reserved));
  const std::size_t first = failed.stack.size() > 12 ? failed.stack.size() - 12 : 0;
  for (std::size_t i = first; i < failed.stack.size(); ++i) text += "  " + printable(failed.stack[i]) + "\n";
  return text;
}

std::string time_section(const Rehearsal& rehearsal, std::size_t shown) {
  const Timeline& timeline = rehearsal.timelines[shown];
  if (timeline.events.empty()) return {};
  const RankReport& rank = rehearsal.report.ranks[shown];
  const auto share = [&](Seconds part) { return timeline.step > Seconds(0) ? part / timeline.step : 0; };
  std::string text =
      fmt::format("\ntime of a step, {} launches ({} matrix products, {:.3e} FLOPs) played on {} streams\n", rank.work->launches,
                  rank.work->gemms, rank.work->gemm_flops, rehearsal.recordings[shown].program.streams.size());
  text += row("step", to_string(timeline.step), 1);
  for (const auto& [name, part] : {std::pair<const char*, Seconds>{"  compute", timeline.compute},
                                   {"  recomputation", timeline.recompute},
                                   {"  optimizer", timeline.optimizer},
                                   {"  exposed communication", timeline.exposed_communication()},
                                   {"  bubble", timeline.bubble},
                                   {"  exposed copies", timeline.exposed_copies},
                                   {"  host", timeline.host},
                                   {"  host optimizer", timeline.host_optimizer}})
    if (part > Seconds(0)) text += row(name, to_string(part), share(part));
  return text;
}

std::string kernel_section(const std::vector<KernelTime>& kernels, std::size_t most) {
  if (kernels.empty()) return {};
  std::string text = fmt::format("\n{:<{}}{:>8}{:>14}\n", "launches by time", kNameWidth + 4, "calls", "time");
  for (std::size_t i = 0; i < std::min(most, kernels.size()); ++i) {
    std::string name = printable(kernels[i].name);
    if (name.size() > kNameWidth) {
      name.resize(kNameWidth - 1);
      name += '~';
    }
    text += fmt::format("  {:<{}}{:>8}{:>14}{}\n", name, kNameWidth + 2, kernels[i].calls, to_string(kernels[i].seconds),
                        kernels[i].bytes_known ? "" : "  (by its threads)");
  }
  if (kernels.size() > most) text += fmt::format("  and {} more\n", kernels.size() - most);
  return text;
}

std::string groups_section(const Recording& recording) {
  std::string text;
  for (const RecordedGroup& group : recording.groups)
    if (group.size > 1)
      text += fmt::format("  {:<{}}{:>6} ranks, this one is {}\n", name_of(group.group), kLabelWidth, group.size, group.rank);
  return text.empty() ? text : "\ncommunicators\n" + text;
}

std::string ranks_section(const Rehearsal& rehearsal) {
  if (rehearsal.recordings.size() < 2) return {};
  std::string text = rehearsal.recordings.front().device ? "\ndevices, and ranks with programs of their own\n"
                                                         : "\nranks with programs of their own\n";
  const auto name = [](const Recording& each) {
    return each.device ? fmt::format("{} device {}", each.rank, *each.device) : std::to_string(each.rank);
  };
  for (std::size_t i = 0; i < rehearsal.recordings.size(); ++i)
    text += fmt::format("  rank {:<12}{:>13} allocated {:>13} reserved {:>13} a step{}\n", name(rehearsal.recordings[i]),
                        to_string(rehearsal.report.ranks[i].memory.allocated), to_string(rehearsal.report.ranks[i].memory.reserved),
                        to_string(rehearsal.timelines[i].step), i == rehearsal.report.worst ? "  (shown)" : "");
  return text;
}

}  // namespace

std::string to_text(const Rehearsal& rehearsal, std::size_t most, const TextStyle& style) {
  const Report& report = rehearsal.report;
  const Recording& recording = rehearsal.recordings[report.worst];
  std::string text = verdict_line(report, recording);
  if (style.detail == TextStyle::Detail::brief) return text;
  text += wrapped("", printable(report.strategy), style.width) + "\n";
  text += memory_section(report.worst_rank()) + activities_section(recording) + out_of_memory_section(recording) + ranks_section(rehearsal);
  text += time_section(rehearsal, report.worst) + kernel_section(rehearsal.kernels[report.worst], most) + groups_section(recording);
  text += "\nnotes\n";
  for (const std::string& note : report.notes) text += wrapped("  - ", printable(note), style.width);
  return text;
}

}  // namespace plimsoll

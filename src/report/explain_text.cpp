// What takes the memory and the time, and what would lower either, for a person.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "plimsoll/report.hpp"
#include "report/answer.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

Bytes whole(double bytes) { return Bytes(static_cast<std::int64_t>(bytes)); }

double percent(Bytes part, Bytes of) { return of > Bytes(0) ? 100 * static_cast<double>(part.count) / static_cast<double>(of.count) : 0; }

std::string headline(const Explanation& explanation, const TextStyle& style) {
  const Report& report = explanation.report;
  const RankReport& rank = explanation.explained();
  std::string text = fmt::format("{} on {}", printable(report.model_name), printable(report.cluster_name));
  if (report.ranks.size() > 1) text += fmt::format(", pipeline stage {} of {}", rank.stage, report.ranks.size());
  return text + (rank.count > 1 ? fmt::format(" ({} GPUs alike)\n", rank.count) : "\n") + wrapped("", printable(report.strategy), style.width);
}

std::string peak_section(const RankMemory& memory, const TextStyle& style) {
  std::string text;
  if (memory.basis == Basis::played) {
    text = painted(style, Ink::heading, "the peak:") + fmt::format(" {} allocated, in {} of step {}", to_string(memory.allocated), name_of(memory.peak_phase),
                       memory.peak_step + 1);
    if (!memory.peak_label.empty()) text += ", at " + printable(memory.peak_label);
    text += fmt::format("\n  requested {} -> ", to_string(memory.requested));
  } else {
    text = wrapped("", "this rank's step is not played (" + memory.closed_form_because + "); what follows is a closed form", style.width) + "  ";
  }
  text += fmt::format("allocated {} -> reserved {} -> device {} of {}", to_string(memory.allocated), to_string(memory.reserved),
                      to_string(whole(memory.device.expected)), to_string(memory.capacity));
  if (memory.device.known())
    text += fmt::format("\n  device between {} and {}", to_string(whole(memory.device.low)), to_string(whole(memory.device.high)));
  text += "\n";
  if (memory.out_of_memory)
    text += wrapped("  ", "out of memory in " + printable(memory.out_of_memory_at) + "; the figures are those of a device without a limit", style.width);
  return text;
}

std::string group_line(const PeakGroup& group, Bytes allocated) {
  const bool alike = group.largest.count * group.count == group.bytes.count;
  const std::string each = group.count == 1 ? "" : fmt::format("{} × {}{}", group.count, alike ? "" : "up to ", to_string(group.largest));
  std::string what = printable(group.module);
  if (!group.operation.empty()) what += (what.empty() ? "" : " · ") + printable(group.operation);
  return fmt::format("    {:>11} {:>5.1f} %  {}{}\n", to_string(group.bytes), percent(group.bytes, allocated),
                     what.empty() ? "(no label)" : what, each.empty() ? "" : ": " + each);
}

struct CategoryTotal {
  Category category;
  Bytes bytes;
};

std::vector<CategoryTotal> totals_of(const std::vector<PeakGroup>& alive) {
  std::map<Category, Bytes> sums;
  for (const PeakGroup& group : alive) sums[group.category] += group.bytes;
  std::vector<CategoryTotal> totals;
  for (const auto& [category, bytes] : sums) totals.push_back({category, bytes});
  std::stable_sort(totals.begin(), totals.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return totals;
}

std::string category_section(const CategoryTotal& total, const std::vector<PeakGroup>& alive, Bytes allocated, std::size_t most) {
  std::string text =
      fmt::format("  {} {}, {:.1f} %\n", to_string(total.bytes), spoken(name_of(total.category)), percent(total.bytes, allocated));
  std::size_t shown = 0, left = 0;
  Bytes left_bytes;
  for (const PeakGroup& group : alive) {
    if (group.category != total.category) continue;
    if (most == 0 || shown < most) {
      text += group_line(group, allocated);
      ++shown;
    } else {
      ++left;
      left_bytes += group.bytes;
    }
  }
  if (left > 0) text += fmt::format("    {:>11} {:>5.1f} %  {} more\n", to_string(left_bytes), percent(left_bytes, allocated), left);
  return text;
}

/// Where nothing was played: the parts as the closed form has them.
std::string parts_section(const RankMemory& memory, const TextStyle& style) {
  std::string text = painted(style, Ink::heading, "what takes the memory, by category") + "\n";
  for (const MemoryPart& part : memory.parts)
    text += fmt::format("  {:>13} {:>5.1f} %  {}\n", to_string(part.bytes), percent(part.bytes, whole(memory.device.expected)),
                        spoken(part.name));
  return text;
}

std::string alive_section(const Explanation& explanation, std::size_t most, const TextStyle& style) {
  const RankMemory& memory = explanation.explained().memory;
  if (memory.basis != Basis::played) return parts_section(memory, style);
  std::string text = painted(style, Ink::heading, "alive at the peak, in shares of what is allocated") + "\n";
  for (const CategoryTotal& total : totals_of(explanation.alive))
    text += category_section(total, explanation.alive, memory.allocated, most);
  return text;
}

Ink ink_of(Verdict verdict) { return verdict == Verdict::fits ? Ink::good : verdict == Verdict::tight ? Ink::warning : Ink::bad; }

/// How the files of the run say a change, for the line below it.
std::string in_files(const Change& change, const TextStyle& style) {
  const std::string words = said_in_files(change);
  return words.empty() ? words : wrapped("      ", words, style.width);
}

std::size_t longest_flag(const std::vector<Change>& changes) {
  std::size_t width = 0;
  for (const Change& change : changes) width = std::max(width, change.flag.size());
  return width;
}

const char* aside_of(const Change& change) { return change.fewer_bits ? ", fewer bits" : change.larger_batch ? ", a larger batch" : ""; }

std::string savings_section(const Explanation& explanation, const TextStyle& style) {
  std::string text = painted(style, Ink::heading, "what would lower device memory most, one change at a time") + "\n";
  if (explanation.changes.empty()) text += "  nothing that was tried\n";
  const std::size_t width = longest_flag(explanation.changes);
  for (const Change& change : explanation.changes) {
    const std::string time = change.slowdown ? fmt::format("step × {:.2f}", *change.slowdown) : "its step time is not modelled";
    text += fmt::format("  {:<{}}  -{:>10} to {:>10}, {}, {}{}\n", change.flag, width, to_string(change.saved), to_string(change.device),
                        painted(style, ink_of(change.verdict), spoken(name_of(change.verdict))), time, aside_of(change));
    text += in_files(change, style);
  }
  for (const Incomparable& other : explanation.incomparable)
    text += wrapped("  - ", fmt::format("{} is not compared, played against closed form: {}", other.flag, printable(other.reason)), style.width);
  return text;
}

std::string step_section(const TimeReport& time, const TextStyle& style) {
  constexpr double kLeastShare = 0.005;  // what rounds to nothing is not said
  std::string parts;
  for (const TimePart& part : time.breakdown) {
    const double share = part.seconds.value / time.step_seconds.expected;
    if (share >= kLeastShare) parts += fmt::format("{}{} {:.0f} %", parts.empty() ? "" : ", ", spoken(part.name), 100 * share);
  }
  std::string text = wrapped("", fmt::format("the step: {}, {}: {}", to_string(Seconds(time.step_seconds.expected)), spoken(name_of(time.basis)), parts), style.width);
  for (const std::string& sentence : time.advice) text += wrapped("  - ", printable(sentence), style.width);
  return text;
}

std::string launches_of(std::int64_t count) { return fmt::format("{} launch{}", count, count == 1 ? "" : "es"); }

/// Why the step takes its time: what its device waits for, and the kernels and collectives that take most.
std::string causes_section(const Explanation& explanation, const TextStyle& style) {
  std::string text;
  for (const std::string& sentence : explanation.causes) text += wrapped("  - ", printable(sentence), style.width);
  const double step = explanation.report.time.step_seconds.expected;
  constexpr std::size_t kMost = 5;
  const auto share = [&](Seconds seconds) { return fmt::format("{:>3.0f} %", 100 * seconds.value / step); };
  if (!explanation.report.time.dearest.empty()) text += painted(style, Ink::heading, "its dearest kernels") + "\n";
  for (std::size_t i = 0; i < std::min(kMost, explanation.report.time.dearest.size()); ++i) {
    const DearKernel& kernel = explanation.report.time.dearest[i];
    text += wrapped("  " + share(kernel.seconds) + "  ", fmt::format("{}, {} of {}, bound by {}: {}", to_string(kernel.seconds), launches_of(kernel.launches),
                                                                    printable(kernel.label), kernel.limit, printable(kernel.what)), style.width);
  }
  if (!explanation.collectives.empty()) text += painted(style, Ink::heading, "its dearest collectives") + "\n";
  for (std::size_t i = 0; i < std::min(kMost, explanation.collectives.size()); ++i) {
    const DearCollective& each = explanation.collectives[i];
    text += wrapped("  " + share(each.seconds) + "  ", fmt::format("{}, {} of it beside nothing: {}, {} in {}", to_string(each.seconds), to_string(each.exposed),
                                                                  printable(each.what), to_string(each.bytes), launches_of(each.launches)), style.width);
  }
  return text;
}

std::string gains_section(const Explanation& explanation, const TextStyle& style) {
  std::string text = step_section(explanation.report.time, style) + causes_section(explanation, style) + "\n" +
                     painted(style, Ink::heading, "what would make it faster, one change at a time") + "\n";
  if (explanation.faster.empty()) text += "  nothing that was tried\n";
  const double step = explanation.report.time.step_seconds.expected;
  const std::size_t width = longest_flag(explanation.faster);
  for (const Change& change : explanation.faster) {
    text += fmt::format("  {:<{}}  × {:.3f}, to {:>8}, {:>10}, {}{}\n", change.flag, width, *change.slowdown,
                        to_string(Seconds(step * *change.slowdown)), to_string(change.device), painted(style, ink_of(change.verdict), spoken(name_of(change.verdict))), aside_of(change));
    text += in_files(change, style);
  }
  return text;
}

}  // namespace

std::string to_text(const Explanation& explanation, std::size_t most, const TextStyle& style) {
  const RankMemory& memory = explanation.explained().memory;
  if (style.detail == TextStyle::Detail::brief) return peak_section(memory, style);
  return headline(explanation, style) + "\n" + peak_section(memory, style) + "\n" + alive_section(explanation, most, style) + "\n" +
         savings_section(explanation, style) + "\n" + gains_section(explanation, style);
}

}  // namespace plimsoll

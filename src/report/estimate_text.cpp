// The report that a person reads in ten seconds.
#include <fmt/core.h>

#include <algorithm>

#include "plimsoll/hardware.hpp"
#include "plimsoll/report.hpp"
#include "report/answer.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

constexpr int kBarWidth = 18;
constexpr std::size_t kLabelWidth = 24;

double gib(double bytes) { return bytes / 1073741824.0; }

std::string spread(const Band& band, const std::string& text_low, const std::string& text_high) {
  return band.known() ? fmt::format(" ({} to {})", text_low, text_high) : std::string();
}

std::string heading(const TextStyle& style, const std::string& text) { return painted(style, Ink::heading, text) + "\n"; }

/// The answer with its verdict in the colour of the verdict.
std::string verdict_line(const Report& report, const TextStyle& style) {
  const std::string answer = answer_of(report);
  const std::size_t colon = answer.find(':');
  const Ink ink = report.verdict == Verdict::fits ? Ink::good : report.verdict == Verdict::tight ? Ink::warning : Ink::bad;
  return wrapped("", painted(style, ink, answer.substr(0, colon)) + printable(answer.substr(colon)), style.width);
}

std::string memory_section(const RankReport& rank, const TextStyle& style) {
  const RankMemory& memory = rank.memory;
  const double share = memory.device.expected / static_cast<double>(memory.capacity.count);
  std::string text = heading(style, fmt::format("memory per GPU ({} alike), peak of a steady step, {}", rank.count, name_of(memory.basis)));
  text += fmt::format("  {:<{}}{:>13}  {} {:.0f} % of {}\n", "device", kLabelWidth,
                      to_string(Bytes(static_cast<std::int64_t>(memory.device.expected))), bar(share, kBarWidth), 100 * share,
                      to_string(memory.capacity));
  for (const MemoryPart& part : memory.parts) {
    if (part.bytes.count < (1 << 10) && style.detail != TextStyle::Detail::full) continue;  // nothing that a person would look for
    const double part_share = static_cast<double>(part.bytes.count) / static_cast<double>(memory.capacity.count);
    text += fmt::format("  {:<{}}{:>13}  {}\n", "  " + spoken(part.name), kLabelWidth, to_string(part.bytes), bar(part_share, kBarWidth));
  }
  std::string path = memory.requested > Bytes(0) ? fmt::format("requested {} -> ", to_string(memory.requested)) : std::string();
  path += fmt::format("allocated {} -> reserved {} -> device {}{}", to_string(memory.allocated), to_string(memory.reserved),
                      to_string(Bytes(static_cast<std::int64_t>(memory.device.expected))),
                      spread(memory.device, fmt::format("{:.1f}", gib(memory.device.low)), fmt::format("{:.1f} GiB", gib(memory.device.high))));
  text += wrapped("  ", path, style.width);
  if (rank.host > Bytes(0)) text += fmt::format("  host memory {} per GPU\n", to_string(rank.host));
  if (!memory.peak_label.empty()) text += wrapped("  ", fmt::format("peak in {}, at {}", name_of(memory.peak_phase), printable(memory.peak_label)), style.width);
  if (memory.out_of_memory) text += wrapped("  ", painted(style, Ink::bad, "out of memory") + " in " + printable(memory.out_of_memory_at), style.width);
  return text;
}

/// What stands on the device in each phase of a step that is more than training's own.
std::string phases_section(const RankMemory& memory, const TextStyle& style) {
  if (memory.phases.empty()) return {};
  const auto in_gib = [](Bytes bytes) { return gib(static_cast<double>(bytes.count)); };
  std::string text = heading(style, "phases of a step, GiB at most") +
                     fmt::format("  {:<14}{:>12}{:>12}{:>12}{:>12}\n", "", "allocated", "reserved", "engine", "device");
  for (const PhaseMemory& each : memory.phases)
    text += fmt::format("  {:<14}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}\n", name_of(each.phase), in_gib(each.allocated), in_gib(each.reserved),
                        in_gib(each.engine), in_gib(each.device));
  return text;
}

std::string stages_section(const Report& report, const TextStyle& style) {
  if (report.ranks.size() < 2) return {};
  std::string text = heading(style, "pipeline stages");
  for (const RankReport& rank : report.ranks)
    text += fmt::format("  stage {:<4} {:>6} GPUs {:>18} parameters {:>9.1f} GiB\n", rank.stage, rank.count,
                        with_thousands(rank.parameters), gib(rank.memory.device.expected));
  return text;
}

std::string time_section(const Report& report, const TextStyle& style) {
  const Band& step = report.time.step_seconds;
  std::string text = heading(style, "time of a step") +
      fmt::format("  {:<{}}{:>13}{}\n", "step", kLabelWidth, to_string(Seconds(step.expected)),
                  spread(step, to_string(Seconds(step.low)), to_string(Seconds(step.high))));
  for (const TimePart& part : report.time.breakdown) {
    const double share = step.expected > 0 ? part.seconds.value / step.expected : 0;
    if (share < 0.0005) continue;
    text += fmt::format("  {:<{}}{:>13}  {} {:.0f} %\n", "  " + spoken(part.name), kLabelWidth, to_string(part.seconds),
                        bar(share, kBarWidth), 100 * share);
  }
  return text;
}

/// The kernels that take longest, and what would spare some of it.
std::string kernels_section(const TimeReport& time, const TextStyle& style) {
  const std::size_t most = style.detail == TextStyle::Detail::full ? time.dearest.size() : 5;
  if (time.dearest.empty()) return {};
  std::string text = heading(style, "dearest kernels");
  for (std::size_t i = 0; i < std::min(most, time.dearest.size()); ++i) {
    const DearKernel& each = time.dearest[i];
    text += fmt::format("  {:<{}}{:>13}  {} launches, bound by {}\n", fmt::format("{:.0f} %", 100 * each.seconds.value / time.step_seconds.expected),
                        kLabelWidth, to_string(each.seconds), with_thousands(each.launches), each.limit);
    text += wrapped("    ", printable(fmt::format("{}: {}", each.label, each.what)), style.width);
  }
  for (const std::string& line : time.advice) text += wrapped("  - ", printable(line), style.width);
  return text;
}

/// The two conventions that people quote side by side; JSON and the full text have all of them.
std::string flops_section(const Report& report, const TextStyle& style) {
  std::string text = heading(
      style, fmt::format("model FLOPs of a token, share of the {:.1f} TFLOP/s peak (MFU)", report.flops.peak_flops_per_second / 1e12));
  for (const FlopsConvention& convention : report.flops.conventions)
    if (convention.name == "megatron" || convention.name == "torchtitan" || style.detail == TextStyle::Detail::full)
      text += fmt::format("  {:<{}}{:>13}  {:.1f} %\n", convention.name, kLabelWidth,
                          fmt::format("{:.3e}", convention.model_flops_per_token), 100 * convention.mfu);
  text += fmt::format("  {:<{}}{:>13}  {:.1f} % (HFU{})\n", "hardware", kLabelWidth,
                      fmt::format("{:.3e}", report.flops.hardware_flops_per_token), 100 * report.flops.hfu,
                      report.flops.hardware_basis == Basis::played ? "" : ", closed form");
  return text;
}

std::string list_section(const char* title, const std::vector<std::string>& lines, const TextStyle& style) {
  if (lines.empty()) return {};
  std::string text = "\n" + heading(style, title);
  for (const std::string& line : lines) text += wrapped("  - ", printable(line), style.width);
  return text;
}

/// Which releases run, where any was said.
std::vector<std::string> release_lines(const Report& report) {
  std::vector<std::string> lines;
  bool said = false;
  for (const Releases::Entry& entry : report.releases) {
    said = said || entry.origin == Releases::Origin::said;
    lines.push_back(fmt::format("{} {} ({})", name_of(entry.package), entry.release.text(), entry.why.empty() ? "said" : entry.why));
  }
  return said ? lines : std::vector<std::string>{};
}

/// Where every number comes from.
std::string sources_section(const Report& report, const TextStyle& style) {
  std::vector<std::string> lines;
  for (const Origin& origin : report.provenance)
    lines.push_back(fmt::format("{}: {}, {}", origin.quantity, name_of(origin.kind), origin.source));
  return list_section("sources", lines, style);
}

}  // namespace

std::string to_text(const Report& report, const TextStyle& style) {
  std::string text = verdict_line(report, style);
  if (style.detail == TextStyle::Detail::brief) return text;
  text += wrapped("", printable(report.strategy), style.width) + "\n" + memory_section(report.worst_rank(), style) + "\n";
  if (const std::string phases = phases_section(report.worst_rank().memory, style); !phases.empty()) text += phases + "\n";
  if (report.ranks.size() > 1) text += stages_section(report, style) + "\n";
  text += time_section(report, style) + "\n" + kernels_section(report.time, style) + "\n" + flops_section(report, style);
  text += list_section("releases", release_lines(report), style) + list_section("assumptions", report.assumptions, style) + list_section("notes", report.notes, style) +
          list_section("keys of the config that were not read", report.unread_keys, style);
  if (style.detail == TextStyle::Detail::full) text += sources_section(report, style);
  return text;
}

}  // namespace plimsoll

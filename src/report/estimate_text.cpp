// The report that a person reads in ten seconds.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "plimsoll/hardware.hpp"
#include "plimsoll/report.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

constexpr int kBarWidth = 18;
constexpr std::size_t kLabelWidth = 24;

double gib(double bytes) { return bytes / 1073741824.0; }

std::string spread(const Band& band, const std::string& text_low, const std::string& text_high) {
  return band.known() ? fmt::format(" ({} to {})", text_low, text_high) : std::string();
}

/// "1.78 s a step, 9,187 tokens/s per GPU, MFU 36.2 %"
std::string pace(const Report& report) {
  std::string text = to_string(Seconds(report.time.step_seconds.expected)) + " a step";
  const double images = report.time.images_per_second_per_gpu;
  text += images > 0 ? fmt::format(", {} images/s per GPU", images < 100 ? fmt::format("{:.2f}", images) : with_thousands(std::llround(images)))
                     : fmt::format(", {} tokens/s per GPU", with_thousands(std::llround(report.time.tokens_per_second_per_gpu)));
  for (const FlopsConvention& convention : report.flops.conventions)
    if (convention.name == "megatron") return text + fmt::format(", MFU {:.1f} %", 100 * convention.mfu);
  return text + fmt::format(", HFU {:.1f} %", 100 * report.flops.hfu);
}

std::string verdict_line(const Report& report) {
  const RankReport& rank = report.worst_rank();
  const char* words = report.verdict == Verdict::fits ? "fits" : report.verdict == Verdict::tight ? "tight" : "does not fit";
  std::string line = fmt::format("{}: {} on {}, {:.1f} of {:.1f} GiB per GPU", words, report.model_name, report.cluster_name,
                                 gib(rank.memory.device.expected), rank.memory.capacity.gib());
  const double margin = rank.memory.margin().gib();
  line += margin >= 0 ? fmt::format(", {:.1f} GiB left", margin) : fmt::format(", {:.1f} GiB too much", -margin);
  if (report.ranks.size() > 1) line += fmt::format("; worst: pipeline stage {}", rank.stage);
  line += "; " + pace(report);
  if (!rank.memory.parts.empty())
    line += fmt::format("; largest part: {}, {:.1f} GiB", spoken(rank.memory.parts.front().name), rank.memory.parts.front().bytes.gib());
  return wrapped("", printable(line));
}

std::string memory_section(const RankReport& rank) {
  const RankMemory& memory = rank.memory;
  const double share = memory.device.expected / static_cast<double>(memory.capacity.count);
  std::string text = fmt::format("memory per GPU ({} alike), peak of a steady step, {}\n", rank.count, name_of(memory.basis));
  text += fmt::format("  {:<{}}{:>13}  {} {:.0f} % of {}\n", "device", kLabelWidth,
                      to_string(Bytes(static_cast<std::int64_t>(memory.device.expected))), bar(share, kBarWidth), 100 * share,
                      to_string(memory.capacity));
  for (const MemoryPart& part : memory.parts) {
    if (part.bytes.count < (1 << 10)) continue;  // nothing that a person would look for
    const double part_share = static_cast<double>(part.bytes.count) / static_cast<double>(memory.capacity.count);
    text += fmt::format("  {:<{}}{:>13}  {}\n", "  " + spoken(part.name), kLabelWidth, to_string(part.bytes), bar(part_share, kBarWidth));
  }
  std::string path = memory.requested > Bytes(0) ? fmt::format("requested {} -> ", to_string(memory.requested)) : std::string();
  path += fmt::format("allocated {} -> reserved {} -> device {}{}", to_string(memory.allocated), to_string(memory.reserved),
                      to_string(Bytes(static_cast<std::int64_t>(memory.device.expected))),
                      spread(memory.device, fmt::format("{:.1f}", gib(memory.device.low)), fmt::format("{:.1f} GiB", gib(memory.device.high))));
  text += wrapped("  ", path);
  if (rank.host > Bytes(0)) text += fmt::format("  host memory {} per GPU\n", to_string(rank.host));
  if (!memory.peak_label.empty()) text += wrapped("  ", fmt::format("peak in {}, at {}", name_of(memory.peak_phase), printable(memory.peak_label)));
  if (memory.out_of_memory) text += wrapped("  ", "out of memory in " + printable(memory.out_of_memory_at));
  return text;
}

std::string stages_section(const Report& report) {
  if (report.ranks.size() < 2) return {};
  std::string text = "pipeline stages\n";
  for (const RankReport& rank : report.ranks)
    text += fmt::format("  stage {:<4} {:>6} GPUs {:>18} parameters {:>9.1f} GiB\n", rank.stage, rank.count,
                        with_thousands(rank.parameters), gib(rank.memory.device.expected));
  return text;
}

std::string time_section(const Report& report) {
  const Band& step = report.time.step_seconds;
  std::string text =
      fmt::format("time of a step\n  {:<{}}{:>13}{}\n", "step", kLabelWidth, to_string(Seconds(step.expected)),
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
std::string kernels_section(const TimeReport& time) {
  constexpr std::size_t kShown = 5;
  if (time.dearest.empty()) return {};
  std::string text = "dearest kernels\n";
  for (std::size_t i = 0; i < std::min(kShown, time.dearest.size()); ++i) {
    const DearKernel& each = time.dearest[i];
    text += fmt::format("  {:<{}}{:>13}  {} launches, bound by {}\n", fmt::format("{:.0f} %", 100 * each.seconds.value / time.step_seconds.expected),
                        kLabelWidth, to_string(each.seconds), with_thousands(each.launches), each.limit);
    text += wrapped("    ", printable(fmt::format("{}: {}", each.label, each.what)));
  }
  for (const std::string& line : time.advice) text += wrapped("  - ", printable(line));
  return text;
}

/// The two conventions that people quote side by side; JSON has all of them.
std::string flops_section(const Report& report) {
  std::string text =
      fmt::format("model FLOPs of a token, share of the {:.1f} TFLOP/s peak (MFU)\n", report.flops.peak_flops_per_second / 1e12);
  for (const FlopsConvention& convention : report.flops.conventions)
    if (convention.name == "megatron" || convention.name == "torchtitan")
      text += fmt::format("  {:<{}}{:>13}  {:.1f} %\n", convention.name, kLabelWidth,
                          fmt::format("{:.3e}", convention.model_flops_per_token), 100 * convention.mfu);
  text += fmt::format("  {:<{}}{:>13}  {:.1f} % (HFU)\n", "hardware", kLabelWidth,
                      fmt::format("{:.3e}", report.flops.hardware_flops_per_token), 100 * report.flops.hfu);
  return text;
}

std::string list_section(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return {};
  std::string text = std::string(title) + "\n";
  for (const std::string& line : lines) text += wrapped("  - ", printable(line));
  return text;
}

}  // namespace

std::string to_text(const Report& report) {
  std::string text = verdict_line(report) + wrapped("", printable(report.strategy)) + "\n";
  text += memory_section(report.worst_rank()) + "\n";
  if (report.ranks.size() > 1) text += stages_section(report) + "\n";
  text += time_section(report) + "\n" + kernels_section(report.time) + "\n" + flops_section(report);
  for (const auto& section : {list_section("assumptions", report.assumptions), list_section("notes", report.notes),
                              list_section("keys of the config that were not read", report.unread_keys)})
    if (!section.empty()) text += "\n" + section;
  return text;
}

}  // namespace plimsoll

#include "report/answer.hpp"

#include <fmt/core.h>

#include <cmath>

#include "report/layout.hpp"

namespace plimsoll {
namespace {

/// "1.78 s a step, 9,187 tokens/s per GPU, MFU 36.2 %"
std::string pace(const Report& report) {
  const std::string text = to_string(Seconds(report.time.step_seconds.expected)) + " a step, " + rate_of(report.time);
  for (const FlopsConvention& convention : report.flops.conventions)
    if (convention.name == "megatron") return text + fmt::format(", MFU {:.1f} %", 100 * convention.mfu);
  return text + fmt::format(", HFU {:.1f} %", 100 * report.flops.hfu);
}

}  // namespace

std::string said_in_files(const Change& change) {
  std::string words;
  for (const std::string& word : change.said) words += (words.empty() ? "" : ", ") + printable(word);
  return words;
}

std::string rate_of(const TimeReport& time) {
  const double images = time.images_per_second_per_gpu;
  if (images <= 0) return with_thousands(std::llround(time.tokens_per_second_per_gpu)) + " tokens/s per GPU";
  return (images < 100 ? fmt::format("{:.2f}", images) : with_thousands(std::llround(images))) + " images/s per GPU";
}

std::string spoken_verdict(Verdict verdict) { return spoken(name_of(verdict)); }

std::string answer_of(const Report& report) {
  const RankReport& rank = report.worst_rank();
  const char* basis = report.time.basis == Basis::closed_form ? "closed form: " : "";
  std::string line = fmt::format("{}{}: {} on {}, {:.1f} of {:.1f} GiB per GPU", basis, spoken_verdict(report.verdict), report.model_name,
                                 report.cluster_name, rank.memory.device.expected / 1073741824.0, rank.memory.capacity.gib());
  const double margin = rank.memory.margin().gib();
  line += margin >= 0 ? fmt::format(", {:.1f} GiB left", margin) : fmt::format(", {:.1f} GiB too much", -margin);
  if (report.host.verdict != Verdict::fits)
    line += fmt::format("; the host {}: {} ranks ask for {:.0f} of its {:.0f} GiB", spoken_verdict(report.host.verdict), report.host.ranks,
                        report.host.most().gib(), report.host.capacity->gib());
  if (report.ranks.size() > 1) line += fmt::format("; worst: pipeline stage {}", rank.stage);
  line += "; " + pace(report);
  if (!rank.memory.parts.empty())
    line += fmt::format("; largest part: {}, {:.1f} GiB", spoken(rank.memory.parts.front().name), rank.memory.parts.front().bytes.gib());
  return line;
}

}  // namespace plimsoll

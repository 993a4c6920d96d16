#include "estimate/tried_changes.hpp"

#include <algorithm>
#include <utility>

#include "plimsoll/error.hpp"

namespace plimsoll::estimation {
namespace {

/// Time of a token (of an image, where samples are images) with a change over that without.
std::optional<double> slowdown_of(const TimeReport& before, const TimeReport& after) {
  if (before.basis != after.basis) return {};
  if (before.tokens_per_second_per_gpu > 0 && after.tokens_per_second_per_gpu > 0)
    return before.tokens_per_second_per_gpu / after.tokens_per_second_per_gpu;
  if (before.images_per_second_per_gpu > 0 && after.images_per_second_per_gpu > 0)
    return before.images_per_second_per_gpu / after.images_per_second_per_gpu;
  return after.step_seconds.expected / before.step_seconds.expected;
}

}  // namespace

std::optional<Tried> compare(const Model& model, const Cluster& cluster, const SingleChange& change, Explanation& explanation) {
  const RankReport& before = explanation.explained();
  try {
    Report report = estimate(model, cluster, change.strategy);
    if (explanation.rank >= report.ranks.size()) return {};
    const RankMemory& after = report.ranks[explanation.rank].memory;
    if (after.basis != before.memory.basis) {
      const std::string& reason = after.basis == Basis::played ? before.memory.closed_form_because : after.closed_form_because;
      explanation.incomparable.push_back({change.flag, reason});
      return {};
    }
    const Bytes device(static_cast<std::int64_t>(after.device.expected));
    const Bytes saved = Bytes(static_cast<std::int64_t>(before.memory.device.expected)) - device;
    return Tried{{change.flag, saved, device, report.verdict, slowdown_of(explanation.report.time, report.time), change.fewer_bits, change.larger_batch,
                  change.options},
                 change, std::move(report)};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
  }
  return {};
}

std::vector<Tried> try_all(const Model& model, const Cluster& cluster, const std::vector<SingleChange>& changes, Explanation& explanation) {
  std::vector<Tried> tried;
  for (const SingleChange& change : changes)
    if (auto found = compare(model, cluster, change, explanation)) tried.push_back(*std::move(found));
  return tried;
}

std::vector<Tried> savings_of(std::vector<Tried> tried) {
  tried.erase(std::remove_if(tried.begin(), tried.end(), [](const Tried& one) { return one.change.saved <= Bytes(0); }), tried.end());
  std::stable_sort(tried.begin(), tried.end(), [](const Tried& a, const Tried& b) { return a.change.saved > b.change.saved; });
  return tried;
}

}  // namespace plimsoll::estimation

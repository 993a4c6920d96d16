// What a framework can do beside the compute and does not by itself: tried one on another.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "estimate/tried_changes.hpp"
#include "plimsoll/framework.hpp"
#include "strategy/flags.hpp"

namespace plimsoll {
namespace {

using namespace estimation;

constexpr double kWorthSaying = 0.999;  // of the step's time before

/// Whether somebody decided it.
bool is_said(const Strategy& said, const SingleChange& change) {
  return std::any_of(change.options.begin(), change.options.end(), [&](const auto& option) {
    return std::any_of(said.options.begin(), said.options.end(), [&](const auto& each) { return each.first == option.first; });
  });
}

/// The fastest of the changes that fit, held against the run in `explanation`.
std::optional<Tried> fastest(const Model& model, const Cluster& cluster, const Strategy& said, Explanation& explanation) {
  std::vector<SingleChange> changes = overlap_changes(said, resolve(said, model, cluster), model, cluster);
  std::erase_if(changes, [&](const SingleChange& change) { return is_said(said, change); });
  std::optional<Tried> best;
  double least = kWorthSaying;
  for (Tried& tried : try_all(model, cluster, changes, explanation)) {
    const double slowdown = tried.change.slowdown.value_or(std::numeric_limits<double>::infinity());
    if (tried.change.verdict == Verdict::does_not_fit || slowdown >= least) continue;
    least = slowdown;
    best = std::move(tried);
  }
  return best;
}

}  // namespace

std::optional<Change> overlapping_change(const Model& model, const Cluster& cluster, const Strategy& strategy, const Report& report) {
  Explanation explanation;
  explanation.report = report;
  std::optional<Change> all;
  Strategy said = strategy;
  while (true) {
    explanation.rank = explanation.report.worst;
    std::optional<Tried> next = fastest(model, cluster, said, explanation);
    if (!next) return all;
    said = next->of.strategy;
    explanation.report = std::move(next->report);
    Change more = std::move(next->change);
    if (all) {
      more.options.insert(more.options.begin(), all->options.begin(), all->options.end());
      more.flag = as_flags(more.options);
      more.slowdown = *all->slowdown * *more.slowdown;
    }
    more.device = Bytes(static_cast<std::int64_t>(explanation.report.worst_rank().memory.device.expected));
    more.saved = Bytes(static_cast<std::int64_t>(report.worst_rank().memory.device.expected)) - more.device;
    more.verdict = explanation.report.verdict;
    all = std::move(more);
  }
}

}  // namespace plimsoll

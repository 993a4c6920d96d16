// What is alive at the peak, and the same run with one thing changed.
#include "plimsoll/explain.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "estimate/causes.hpp"
#include "estimate/rank_groups.hpp"
#include "estimate/rank_memory.hpp"
#include "estimate/single_changes.hpp"
#include "estimate/tried_changes.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

using namespace estimation;

std::size_t index_of(const Report& report, std::optional<std::int64_t> stage) {
  if (!stage) return report.worst;
  for (std::size_t i = 0; i < report.ranks.size(); ++i)
    if (report.ranks[i].stage == *stage) return i;
  fail(fmt::format("there is no pipeline stage {}", *stage), {}, fmt::format("stages are 0 to {}", report.ranks.back().stage));
}

/// The tensors at the peak that the report shows: without the device's limit where the steps do not fit in it.
std::vector<LiveTensor> alive_tensors(const PlayableRank& rank, bool out_of_memory) {
  PlayMemoryOptions options = rank.options;
  if (out_of_memory) options.capacity = Bytes(INT64_MAX);
  return alive_at_peak(rank.program, options);
}

/// Every change that makes the step shorter by more than what a changed order of launches does, the fastest first.
std::vector<Tried> gains_of(std::vector<Tried> tried) {
  constexpr double kLeast = 0.998;
  const auto idle = [](const Tried& one) { return !one.change.slowdown || *one.change.slowdown > kLeast; };
  tried.erase(std::remove_if(tried.begin(), tried.end(), idle), tried.end());
  std::stable_sort(tried.begin(), tried.end(), [](const Tried& a, const Tried& b) { return *a.change.slowdown < *b.change.slowdown; });
  return tried;
}

std::vector<Change> changes_of(std::vector<Tried> tried) {
  std::vector<Change> changes;
  for (Tried& one : tried) changes.push_back(std::move(one.change));
  return changes;
}

/// Why the step takes its time, where it was played and is not too long to be kept piece by piece.
void add_causes(const Model& model, const Cluster& cluster, const Strategy& strategy, const Strategy& resolved, Explanation& explanation) {
  if (explanation.report.time.basis != Basis::played) return;
  try {
    for (const RankTimeline& rank : rank_timelines(model, cluster, strategy))
      if (rank.stage == explanation.explained().stage) find_causes(rank, pricing_of_run(model, cluster, strategy), resolved, explanation);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
  }
}

}  // namespace

PlayableRank playable_rank(const Model& model, const Cluster& cluster, const Strategy& strategy, std::int64_t stage) {
  const Strategy resolved = resolve(strategy, model, cluster);
  if (stage < 0 || stage >= resolved.pp)
    fail(fmt::format("there is no pipeline stage {}", stage), {}, fmt::format("stages are 0 to {}", resolved.pp - 1));
  StepProgram program = RankPrograms(model, resolved, cluster).of_stage(static_cast<int>(stage));
  const PlayMemoryOptions options = play_options(program, model, cluster, resolved);
  return {std::move(program), options, rank_groups(resolved)};
}

Explanation explain(const Model& model, const Cluster& cluster, const Strategy& strategy, std::optional<std::int64_t> stage) {
  Explanation explanation;
  explanation.report = estimate_or_nearest(model, cluster, strategy);
  explanation.rank = index_of(explanation.report, stage);
  const RankReport& rank = explanation.explained();
  if (rank.memory.basis == Basis::played)
    explanation.alive = group_alive(alive_tensors(playable_rank(model, cluster, strategy, rank.stage), rank.memory.out_of_memory));
  const Strategy resolved = resolve(strategy, model, cluster);
  std::vector<SingleChange> changes = memory_changes(strategy, resolved, model, cluster);
  for (SingleChange& change : time_changes(strategy, resolved, model, cluster)) changes.push_back(std::move(change));
  const std::vector<Tried> tried = try_all(model, cluster, changes, explanation);
  explanation.changes = changes_of(savings_of(tried));
  explanation.faster = changes_of(gains_of(tried));
  add_causes(model, cluster, strategy, resolved, explanation);
  return explanation;
}

}  // namespace plimsoll

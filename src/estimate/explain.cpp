// What is alive at the peak, and the same run with one thing changed.
#include "plimsoll/explain.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "estimate/causes.hpp"
#include "estimate/rank_groups.hpp"
#include "estimate/rank_memory.hpp"
#include "estimate/single_changes.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"

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

/// A change with the strategy that it gives.
struct Tried {
  Change change;
  Strategy strategy;
};

/// Time of a token (of an image, where samples are images) with a change over that without.
std::optional<double> slowdown_of(const TimeReport& before, const TimeReport& after) {
  if (before.basis != after.basis) return {};
  if (before.tokens_per_second_per_gpu > 0 && after.tokens_per_second_per_gpu > 0)
    return before.tokens_per_second_per_gpu / after.tokens_per_second_per_gpu;
  if (before.images_per_second_per_gpu > 0 && after.images_per_second_per_gpu > 0)
    return before.images_per_second_per_gpu / after.images_per_second_per_gpu;
  return after.step_seconds.expected / before.step_seconds.expected;
}

/// Holds one changed strategy against the explained rank. What the framework or plimsoll does not take is no suggestion.
std::optional<Tried> compare(const Model& model, const Cluster& cluster, const SingleChange& change, Explanation& explanation) {
  const RankReport& before = explanation.explained();
  try {
    const Report report = estimate(model, cluster, change.strategy);
    if (explanation.rank >= report.ranks.size()) return {};
    const RankMemory& after = report.ranks[explanation.rank].memory;
    if (after.basis != before.memory.basis) {
      const std::string& reason = after.basis == Basis::played ? before.memory.closed_form_because : after.closed_form_because;
      explanation.incomparable.push_back({change.flag, reason});
      return {};
    }
    const Bytes device(static_cast<std::int64_t>(after.device.expected));
    const Bytes saved = Bytes(static_cast<std::int64_t>(before.memory.device.expected)) - device;
    return Tried{{change.flag, saved, device, report.verdict, slowdown_of(explanation.report.time, report.time), change.fewer_bits, change.larger_batch},
                 change.strategy};
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

bool saves(const Tried& tried) { return tried.change.saved > Bytes(0); }

/// Every change that saves memory, the largest saving first.
std::vector<Tried> savings_of(std::vector<Tried> tried) {
  tried.erase(std::remove_if(tried.begin(), tried.end(), [](const Tried& one) { return !saves(one); }), tried.end());
  std::stable_sort(tried.begin(), tried.end(), [](const Tried& a, const Tried& b) { return a.change.saved > b.change.saved; });
  return tried;
}

/// Whether the worst rank is too large for its device even by all that each of the changes saves on its own.
bool is_hopeless(const Report& report, const std::vector<Tried>& tried) {
  const RankMemory& memory = report.worst_rank().memory;
  double least = memory.device.expected;
  for (const Tried& one : tried) least -= static_cast<double>(one.change.saved.count);
  return least > static_cast<double>(memory.capacity.count);
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

/// Options of a command line, those of `later` in the place of the same ones of `flags`.
std::string joined(const std::string& flags, const std::string& later) {
  std::string kept;
  for (std::size_t at = 0; at < flags.size();) {
    const std::size_t next = std::min(flags.find(" --", at + 1), flags.size());  // an option with its value
    const std::string option = flags.substr(at, next - at), name = option.substr(0, option.find(' '));
    if ((later + " ").find(name + " ") == std::string::npos) kept += option + " ";
    at = next + 1;
  }
  return kept + later;
}

/// Of the changes with which the run fits, the one that costs least time, those first that leave it some room; one whose time cannot be
/// compared comes last.
std::vector<Tried>::const_iterator fastest_that_fits(const std::vector<Tried>& tried) {
  const auto rank = [](const Tried& one) {
    return std::pair(one.change.verdict, one.change.slowdown.value_or(std::numeric_limits<double>::infinity()));
  };
  const auto best = std::min_element(tried.begin(), tried.end(), [&](const Tried& a, const Tried& b) { return rank(a) < rank(b); });
  return best == tried.end() || best->change.verdict == Verdict::does_not_fit ? tried.end() : best;
}

/// fitting_change among the changes that leave every number as it is, or (`rounding`) among all.
std::optional<Change> fitting_changes(const Model& model, const Cluster& cluster, const Strategy& strategy, bool rounding) {
  constexpr int kMostTogether = 3;
  Strategy base = strategy;
  std::string flags;
  for (int together = 0; together < kMostTogether; ++together) {
    Explanation explanation;
    explanation.report = estimate(model, cluster, base);
    explanation.rank = explanation.report.worst;
    std::vector<SingleChange> changes = memory_changes(base, resolve(base, model, cluster), model, cluster);
    if (!rounding)
      changes.erase(std::remove_if(changes.begin(), changes.end(), [](const SingleChange& c) { return c.fewer_bits; }), changes.end());
    const std::vector<Tried> tried = savings_of(try_all(model, cluster, changes, explanation));
    if (tried.empty() || is_hopeless(explanation.report, tried)) return {};
    const auto fits = fastest_that_fits(tried);
    const auto best = fits != tried.end() ? fits : tried.begin();
    flags = joined(flags, best->change.flag);
    if (fits != tried.end()) {
      Change change = fits->change;
      change.flag = flags;
      return change;
    }
    base = best->strategy;
  }
  return {};
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
  const PlayMemoryOptions options = play_options(program, cluster, resolved);
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

std::optional<Change> fitting_change(const Model& model, const Cluster& cluster, const Strategy& strategy) {
  for (const bool rounding : {false, true})
    if (auto change = fitting_changes(model, cluster, strategy, rounding)) return change;
  return {};
}

}  // namespace plimsoll

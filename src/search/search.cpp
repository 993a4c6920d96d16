// A search on one screen: layouts are judged, their blocks summarised, every plan composed, the best estimated in full.
#include "plimsoll/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>

#include "plimsoll/error.hpp"
#include "plimsoll/explain.hpp"
#include "search/finalists.hpp"
#include "search/fingerprint.hpp"
#include "search/rescue.hpp"
#include "search/rounds.hpp"
#include "search/screen.hpp"

namespace plimsoll {
namespace {

using namespace searching;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Contradictions that no plan escapes: where not one layout is legal, the first complaint is the answer.
void raise_if_all_contradict(const Layouts& layouts) {
  if (!layouts.legal.empty()) return;
  const auto most = std::max_element(layouts.rejected.begin(), layouts.rejected.end(),
                                     [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
  if (most == layouts.rejected.end()) return;
  fail(most->second.example.empty() ? most->first : most->second.example, "search", "no plan of the space is legal; open more axes");
}

SearchPlan plan_of(const Space& space, const Layouts& layouts, const Screened& one) {
  return {one.index,
          space.options(one.index),
          layouts.legal[one.layout].gpus,
          layouts.legal[one.layout].tokens,
          one.seconds,
          Bytes(static_cast<std::int64_t>(one.bytes + one.cache)),
          one.known};
}

void describe(SearchResult& result, const SearchRequest& request, const Space& space) {
  result.model = request.model.name;
  result.cluster = request.cluster.name;
  result.fingerprint = fingerprint_of(request, space);
  result.goal = request.goal;
  result.free_batch = free_batch(request);
  result.shard = request.shard;
  result.shards = std::max<std::uint64_t>(1, request.shards);
  result.axes = space.axes();
  result.points = space.points();
}

/// What did not fit: how many, the best of them, and what would make it fit.
void tell_what_does_not_fit(const Sieve& sieve, const Screen& screen, const Space& space, const Layouts& layouts,
                            const SearchRequest& request, SearchResult& result) {
  if (sieve.unplayed > 0) result.rejected[kUnplayed].count = sieve.unplayed;
  if (sieve.beaten > 0) result.rejected["slower, by the least that their layers take, than what was found"].count = sieve.beaten;
  if (sieve.too_slow > 0) result.rejected["slower than the deadline"].count = sieve.too_slow;
  if (sieve.too_large == 0) return;
  SearchRejection& rejection = result.rejected["does not fit"];
  rejection.count = sieve.too_large;
  rejection.nearest = plan_of(space, layouts, sieve.fastest_too_large);
  rejection.nearest_seconds = sieve.fastest_too_large.seconds;
  const double missing = sieve.fastest_too_large.bytes + sieve.fastest_too_large.cache -
                         static_cast<double>(request.cluster.accelerator.memory_usable.value.count);
  rejection.example = "the fastest of them by " + to_string(Bytes(static_cast<std::int64_t>(missing)));
  rejection.rescue = rescue_of(sieve.fastest_too_large, screen, space, layouts, request);
}

/// Where nothing fits: the plan that needs least, in full, and what would make it fit beyond the axes.
void tell_what_is_nearest(const Sieve& sieve, const std::function<SearchPlan(const Screened&)>& to_plan, const SearchRequest& request,
                          SearchResult& result) {
  constexpr std::size_t kMostStages = 8;  // each change that is tried plays all of them
  if (!result.best.empty() || !result.complete || !sieve.smallest.known) return;
  SearchRejection& rejection = result.rejected["does not fit"];
  rejection.nearest = to_plan(sieve.smallest);
  rejection.nearest_seconds = sieve.smallest.seconds;
  rejection.rescue.clear();
  const Cluster cluster = part_of(request.cluster, rejection.nearest.gpus);
  const Strategy strategy = strategy_of(request, rejection.nearest);
  try {
    const Report report = estimate(request.model, cluster, strategy);
    const RankMemory& memory = report.worst_rank().memory;
    rejection.example = fmt::format("the nearest needs {} of {}", to_string(Bytes(static_cast<std::int64_t>(memory.device.expected))),
                                    to_string(memory.capacity));
    if (report.verdict != Verdict::does_not_fit || report.ranks.size() > kMostStages) return;
    const auto change = fitting_change(request.model, cluster, strategy);
    rejection.rescue = change ? fmt::format("it would fit as {} {}", command_of(request, rejection.nearest), change->flag)
                              : "no change that was tried makes it fit: take more or larger GPUs";
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
  }
}

/// Settings that no axis opens: what of the best plan's communication could run beside its compute.
void tell_what_overlaps(const SearchRequest& request, const Watch& watch, SearchResult& result) {
  if (result.best.empty() || !result.complete || watch.stopped()) return;
  const EstimatedPlan& best = result.best.front();
  const auto change = overlapping_change(request.model, part_of(request.cluster, best.plan.gpus), strategy_of(request, best.plan), best.report);
  if (!change) return;
  result.notes.push_back(fmt::format("the best plan takes {} a step instead of {} with {}, which no axis opens ({} of {} then)",
                                     to_string(Seconds(best.seconds() * *change->slowdown)), to_string(Seconds(best.seconds())), change->flag,
                                     to_string(change->device), to_string(best.report.worst_rank().memory.capacity)));
}

}  // namespace

SearchResult search(const SearchRequest& request, const SearchWatcher& watcher) {
  const auto start = Clock::now();
  Watch watch(watcher);
  const Space space(request);
  SearchResult result;
  describe(result, request, space);
  const Layouts layouts = find_layouts(space, request, watch);
  for (const auto& [reason, rejection] : layouts.rejected) result.rejected[reason] = rejection;
  if (!watch.stopped() && request.shards <= 1) raise_if_all_contradict(layouts);
  State state(request.resume, request, result.fingerprint);
  Screen screen(space, request, layouts, state);
  const std::function<SearchPlan(const Screened&)> to_plan = [&](const Screened& one) { return plan_of(space, layouts, one); };
  Scout scout(screen, layouts, to_plan, request, state);
  if (request.keep_candidates > 0) {
    screen.summarize(watch);  // all of them are asked for
  } else {
    summarize_what_matters(screen, space, request, layouts, scout, watch);
  }
  result.probes = screen.instances();
  if (screen.can() && !screen.plays() && !layouts.legal.empty())
    result.notes.push_back("no plan's program can be played: all of this is closed forms");
  if (!screen.can()) result.notes.push_back("layers of this model are not all alike: plans are estimated one by one, none is screened");
  const auto screening = Clock::now();
  const Sieve sieve = sift(screen, layouts, request, watch);
  result.screening_seconds = seconds_since(screening);
  result.legal = sieve.legal;
  result.screened = sieve.screened;
  tell_what_does_not_fit(sieve, screen, space, layouts, request, result);
  estimate_finalists(sieve, screen, to_plan, request, scout.plans(), watch, state, result);
  result.estimated += scout.plans().size();
  tell_what_is_nearest(sieve, to_plan, request, result);
  tell_what_overlaps(request, watch, result);
  for (std::size_t i = 0; i < std::min(request.keep_candidates, sieve.candidates.size()); ++i)
    result.candidates.push_back(to_plan(sieve.candidates[i]));
  result.complete = result.complete && !watch.stopped();
  if (watch.stopped()) result.state = state.text(request, result.fingerprint);
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace plimsoll

#include "search/finalists.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "estimate/read_programs.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::searching {
namespace {

constexpr std::size_t kMostKept = 400'000;  // per thread, and twice as many for a moment: 51 MB
constexpr int kHeadrooms = 16;
constexpr const char* kReasons[] = {"", "does not fit", "slower than the deadline", "refused by the estimate",
                                    kUnplayed};  // by Outcome::What

/// The `size` smallest scores so far; the largest of them is the bar.
class Best {
 public:
  explicit Best(std::size_t size) : size_(std::max<std::size_t>(1, size)) { scores_.reserve(size_ + 1); }
  void add(const Score& score) {
    if (scores_.size() == size_ && !(score < scores_.front())) return;
    scores_.push_back(score);
    std::push_heap(scores_.begin(), scores_.end());
    if (scores_.size() <= size_) return;
    std::pop_heap(scores_.begin(), scores_.end());
    scores_.pop_back();
  }
  /// Infinite while there are fewer.
  Score bar() const { return scores_.size() < size_ ? Score{} : scores_.front(); }
  const std::vector<Score>& scores() const { return scores_; }

 private:
  std::size_t size_;
  std::vector<Score> scores_;
};

/// One thread's share of the sieve.
class Sifter {
 public:
  Sifter(const Screen& screen, const Layouts& layouts, const SearchRequest& request)
      : screen_(screen),
        layouts_(layouts),
        request_(request),
        capacity_(static_cast<double>(request.cluster.accelerator.memory_usable.value.count)),
        most_seconds_(request.most_step_seconds > 0 ? request.most_step_seconds : std::numeric_limits<double>::infinity()),
        best_(request.top) {
    sieve_.plays = screen.plays();
  }

  void sift(std::uint32_t layout) {
    const std::int64_t gpus = layouts_.legal[layout].gpus;
    const auto tokens = static_cast<double>(layouts_.legal[layout].tokens);
    auto& front = front_[gpus];
    count_uncomposed(layout);
    screen_.each(layout, [&](const Screened& plan) {
      ++sieve_.legal;
      if (!plan.known && plan.refusal > 0)
        return static_cast<void>(refused_[{layouts_.legal[layout].kind, plan.refusal}].emplace_back(plan.index, layout));
      if (!plan.known) return keep(plan, {-1, 0});
      ++sieve_.screened;
      if (sieve_.plays && !plan.played) return static_cast<void>(++sieve_.unplayed);
      const ScreeningBound bound = screen_.bound(plan);
      const double fastest = screen_.least_seconds(plan), slowest = bound.most_seconds(plan.seconds);
      const double least = bound.least_bytes(plan.bytes), most = bound.most_bytes(plan.bytes);
      smaller(plan);
      if (least > capacity_) return too_large(plan);
      if (fastest > most_seconds_) return static_cast<void>(++sieve_.too_slow);
      if (most <= capacity_ && slowest <= most_seconds_) best_.add(score_of(request_.goal, slowest / tokens, gpus));
      if (const double left = 1 - (plan.bytes + plan.cache) / capacity_; left >= 0) {
        const auto headroom = static_cast<std::size_t>(kHeadrooms * left);
        Screened& held = front[std::min<std::size_t>(headroom, kHeadrooms - 1)];
        if (is_faster(plan, held)) held = plan;
      }
      const Score score = score_of(request_.goal, fastest / tokens, gpus);
      if (request_.keep_candidates > 0 || !(best_.bar() < score)) keep(plan, score);
    });
  }

  /// Takes over what another thread found.
  void join(Sifter&& other) {
    sieve_.legal += other.sieve_.legal;
    sieve_.screened += other.sieve_.screened;
    sieve_.too_large += other.sieve_.too_large;
    sieve_.too_slow += other.sieve_.too_slow;
    sieve_.beaten += other.sieve_.beaten;
    sieve_.unplayed += other.sieve_.unplayed;
    sieve_.complete &= other.sieve_.complete;
    if (other.sieve_.fastest_too_large.known) faster_too_large(other.sieve_.fastest_too_large);
    if (other.sieve_.smallest.known) smaller(other.sieve_.smallest);
    for (const Score& score : other.best_.scores()) best_.add(score);
    kept_.insert(kept_.end(), other.kept_.begin(), other.kept_.end());
    std::vector<Kept>().swap(other.kept_);
    for (auto& [kind, plans] : other.refused_) {
      auto& all = refused_[kind];
      all.insert(all.end(), plans.begin(), plans.end());
    }
    for (const auto& [gpus, headrooms] : other.front_)
      for (std::size_t i = 0; i < headrooms.size(); ++i) {
        Screened& held = front_[gpus][i];
        const Screened& theirs = headrooms[i];
        if (theirs.known && is_faster(theirs, held)) held = theirs;
      }
  }

  Sieve finished() && {
    drop_beaten();
    std::sort(kept_.begin(), kept_.end(), [&](const Kept& a, const Kept& b) { return expected(a.plan) < expected(b.plan); });
    sieve_.candidates.reserve(kept_.size());
    for (const Kept& each : kept_) sieve_.candidates.push_back(each.plan);
    std::vector<Kept>().swap(kept_);
    for (auto& [kind, plans] : refused_) {
      std::sort(plans.begin(), plans.end());
      sieve_.alike.push_back({screen_.refusal(kind.second), std::move(plans)});
    }
    for (const auto& [gpus, headrooms] : front_) {
      double fastest = std::numeric_limits<double>::infinity();
      for (std::size_t i = headrooms.size(); i-- > 0;)  // the most headroom first: with less of it a plan must be faster
        if (headrooms[i].known && seconds_per_token(headrooms[i]) < fastest) {
          fastest = seconds_per_token(headrooms[i]);
          sieve_.front.push_back({static_cast<int>(i), headrooms[i]});
        }
    }
    return std::move(sieve_);
  }

 private:
  struct Kept {
    Screened plan;
    Score score;
  };

  void keep(const Screened& plan, const Score& score) {
    kept_.push_back({plan, score});
    if (kept_.size() < 2 * kMostKept) return;
    drop_beaten();
    if (kept_.size() <= kMostKept) return;
    sieve_.complete = false;
    std::nth_element(kept_.begin(), kept_.begin() + kMostKept, kept_.end(), [](const Kept& a, const Kept& b) { return a.score < b.score; });
    kept_.resize(kMostKept);
  }

  void drop_beaten() {
    if (request_.keep_candidates > 0) return;
    const Score bar = best_.bar();
    std::erase_if(kept_, [&](const Kept& each) { return bar < each.score; });
  }

  void count_uncomposed(std::uint32_t layout) {
    const Layout& of = layouts_.legal[layout];
    for (std::size_t setting = 0; setting < layouts_.settings[of.kind].size(); ++setting)
      if (const Fate fate = screen_.fate(layout, setting); layouts_.settings[of.kind][setting] && fate != Fate::composed) {
        ++sieve_.legal;
        ++sieve_.screened;
        ++(fate == Fate::beaten ? sieve_.beaten : sieve_.too_large);
      }
  }

  void too_large(const Screened& plan) {
    ++sieve_.too_large;
    faster_too_large(plan);
  }

  void smaller(const Screened& plan) {
    const auto needs = [](const Screened& one) { return std::pair(one.bytes + one.cache, one.index); };
    if (!sieve_.smallest.known || needs(plan) < needs(sieve_.smallest)) sieve_.smallest = plan;
  }

  void faster_too_large(const Screened& plan) {
    if (is_faster(plan, sieve_.fastest_too_large)) sieve_.fastest_too_large = plan;
  }

  /// Those that seem to fit first, by their score as composed, then those that nothing is known of, then those that seem too large.
  std::tuple<int, double, double, std::uint64_t> expected(const Screened& plan) const {
    const int rank = !plan.known ? 1 : plan.bytes + plan.cache <= capacity_ ? 0 : 2;
    const Score score = score_of(request_.goal, plan.known ? seconds_per_token(plan) : 0, layouts_.legal[plan.layout].gpus);
    return {rank, score.first, score.second, plan.index};
  }

  double seconds_per_token(const Screened& plan) const { return plan.seconds / static_cast<double>(layouts_.legal[plan.layout].tokens); }
  /// Than one that may be none.
  bool is_faster(const Screened& plan, const Screened& held) const {
    if (!held.known) return true;
    const double its = seconds_per_token(plan), other = seconds_per_token(held);
    return its < other || (its == other && plan.index < held.index);
  }

  const Screen& screen_;
  const Layouts& layouts_;
  const SearchRequest& request_;
  double capacity_, most_seconds_;
  Best best_;
  std::vector<Kept> kept_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::pair<std::uint64_t, std::uint32_t>>>
      refused_;                                                     ///< by kind of layout and what for
  std::map<std::int64_t, std::array<Screened, kHeadrooms>> front_;  ///< by GPUs
  Sieve sieve_;
};

/// The best estimated plans so far, shared by the threads.
class Podium {
 public:
  Podium(const SearchRequest& request, SearchResult& result) : request_(request), result_(result) {}

  /// The score that a plan must beat; infinite while there are fewer than asked for.
  Score bar() const {
    const std::lock_guard lock(mutex_);
    return result_.best.size() < request_.top ? Score{} : score(result_.best.back());
  }
  double best_seconds() const {
    const std::lock_guard lock(mutex_);
    return result_.best.empty() ? 0 : result_.best.front().seconds();
  }
  void add(EstimatedPlan plan) {
    const std::lock_guard lock(mutex_);
    const auto at =
        std::upper_bound(result_.best.begin(), result_.best.end(), plan, [&](const auto& a, const auto& b) { return before(a, b); });
    result_.best.insert(at, std::move(plan));
    if (result_.best.size() > request_.top) result_.best.pop_back();
  }
  void reject(const Outcome& outcome) {
    const std::lock_guard lock(mutex_);
    SearchRejection& rejection = result_.rejected[kReasons[static_cast<int>(outcome.what)]];
    ++rejection.count;
    if (rejection.example.empty()) rejection.example = outcome.because;
  }

 private:
  Score score(const EstimatedPlan& plan) const { return score_of(request_.goal, plan.seconds_per_token(), plan.plan.gpus); }
  bool before(const EstimatedPlan& a, const EstimatedPlan& b) const {
    const Score first = score(a), second = score(b);
    if (first < second || second < first) return first < second;
    return a.plan.index < b.plan.index;
  }

  const SearchRequest& request_;
  SearchResult& result_;
  mutable std::mutex mutex_;
};

bool dominates(const EstimatedPlan& a, const EstimatedPlan& b) {
  const double faster = b.seconds_per_token() - a.seconds_per_token(), cheaper = b.gpu_seconds_per_token() - a.gpu_seconds_per_token();
  const bool no_worse = faster >= 0 && a.headroom() >= b.headroom() && a.plan.gpus <= b.plan.gpus && cheaper >= 0;
  const bool better = faster > 0 || a.headroom() > b.headroom() || a.plan.gpus < b.plan.gpus || cheaper > 0;
  return no_worse && (better || a.plan.index < b.plan.index);
}

/// Seconds of a step of so many tokens from which on its plan is not among the best any more.
double most_seconds(const Score& bar, SearchGoal goal, std::int64_t gpus, std::int64_t tokens) {
  const auto count = static_cast<double>(gpus), of_step = static_cast<double>(tokens);
  switch (goal) {
    case SearchGoal::gpus:
      return count < bar.first ? std::numeric_limits<double>::infinity() : count > bar.first ? 0 : bar.second * of_step;
    case SearchGoal::cost:
      return bar.first / count * of_step;
    default:
      return bar.first * of_step;
  }
}

/// A plan in full, or why there is none.
struct Tried {
  std::optional<EstimatedPlan> plan;
  bool too_large = false;       ///< played, and it does not fit
  double slow_step = 0;         ///< seconds, where it takes longer than was asked; whether all of its ranks fit is not known
  std::string refusal, reason;  ///< in full, and of all that is alike
};

class Estimator {
 public:
  Estimator(const std::function<SearchPlan(const Screened&)>& to_plan, const SearchRequest& request,
            const std::map<std::uint64_t, EstimatedPlan>& known)
      : to_plan_(to_plan), request_(request), known_(known) {}

  /// `most`: seconds of a step that is of no use any more, of a plan that is likely slower.
  Tried tried(const Screened& one, std::optional<double> most = {}) const {
    if (const auto found = known_.find(one.index); found != known_.end()) return {found->second, false, 0, {}, {}};
    EstimatedPlan plan{to_plan_(one), {}, {}};
    try {
      estimation::Sought sought =
          estimation::estimate_sought(request_.model, part_of(request_.cluster, plan.plan.gpus), strategy_of(request_, plan.plan), most);
      if (!sought.report) return {{}, !sought.slow_step, sought.slow_step.value_or(0), {}, {}};
      plan.report = *std::move(sought.report);
      plan.command = command_of(request_, plan.plan);
      return {std::move(plan), false, 0, {}, {}};
    } catch (const Error& error) {
      if (error.code() == ErrorCode::internal) throw;
      return {{}, false, 0, error.message(), reason_of(error)};
    }
  }
  bool counts(const EstimatedPlan& plan) const { return what_of(plan, false) == Outcome::What::stands; }
  /// The plan in full and what comes of it; `plays`: closed forms are no candidates. There is none where it stands, but is slower than the
  /// best.
  Outcome outcome(const Screened& one, bool plays, std::optional<EstimatedPlan>& plan, const Score& bar = {}) const {
    const SearchPlan said = to_plan_(one);
    const double most = most_seconds(bar, request_.goal, said.gpus, said.tokens);
    Tried tried = this->tried(one, one.known && one.seconds > most ? std::optional(most) : std::nullopt);
    if (tried.too_large) return {Outcome::What::too_large, 0, 0, {}};
    if (tried.slow_step > 0) return {what_of(tried.slow_step), tried.slow_step / static_cast<double>(said.tokens), said.gpus, {}};
    plan = std::move(tried.plan);
    if (!plan) return {Outcome::What::refused, 0, 0, tried.refusal};
    const Outcome::What what = what_of(*plan, plays);
    return {what, plan->seconds_per_token(), plan->plan.gpus,
            what == Outcome::What::unplayed ? plan->report.time.closed_form_because : std::string()};
  }

 private:
  Outcome::What what_of(const EstimatedPlan& plan, bool plays) const {
    if (plays && !was_played(plan.report)) return Outcome::What::unplayed;
    if (plan.report.verdict == Verdict::does_not_fit) return Outcome::What::too_large;
    return what_of(plan.seconds());
  }
  Outcome::What what_of(double seconds) const {
    return request_.most_step_seconds > 0 && seconds > request_.most_step_seconds ? Outcome::What::too_slow : Outcome::What::stands;
  }

  const std::function<SearchPlan(const Screened&)>& to_plan_;
  const SearchRequest& request_;
  const std::map<std::uint64_t, EstimatedPlan>& known_;
};

/// The score that a plan whose outcome is known must reach to be one of the best.
Score bar_of(const State& state, const SearchRequest& request) {
  Best best(request.top);
  for (const auto& [index, outcome] : state.standing()) best.add(score_of(request.goal, outcome.seconds_per_token, outcome.gpus));
  return best.bar();
}

/// What the sieve offers for the front, in full.
std::vector<FrontOffer> estimated_offers(const Sieve& sieve, const Estimator& estimator,
                                         const std::function<SearchPlan(const Screened&)>& to_plan, int threads, Watch& watch) {
  std::vector<FrontOffer> offers(sieve.front.size());
  parallel_for(offers.size(), threads, watch, "front", [&](std::uint64_t i, int) {
    const auto& [sixteenth, one] = sieve.front[i];
    std::optional<EstimatedPlan> plan = estimator.tried(one).plan;
    const bool stands = plan && estimator.counts(*plan) && (!sieve.plays || was_played(plan->report));
    const SearchPlan offered = to_plan(one);
    offers[i] = {offered.gpus, sixteenth, one.seconds / static_cast<double>(offered.tokens), one.index,
                 stands ? std::move(plan) : std::nullopt};
  });
  return offers;
}

/// Of what was offered for the front, and the best, those that no other beats in everything.
void find_front(const std::vector<FrontOffer>& offers, SearchResult& result) {
  std::vector<EstimatedPlan> plans;
  for (const FrontOffer& offer : offers)
    if (offer.plan) plans.push_back(*offer.plan);
  std::set<std::uint64_t> seen;
  for (const EstimatedPlan& plan : plans) seen.insert(plan.plan.index);
  for (const EstimatedPlan& plan : result.best)
    if (seen.insert(plan.plan.index).second) plans.push_back(plan);
  for (const EstimatedPlan& plan : plans)
    if (std::none_of(plans.begin(), plans.end(), [&](const EstimatedPlan& other) { return dominates(other, plan); }))
      result.front.push_back(plan);
  std::sort(result.front.begin(), result.front.end(), [](const EstimatedPlan& a, const EstimatedPlan& b) {
    return std::pair(a.seconds_per_token(), a.plan.index) < std::pair(b.seconds_per_token(), b.plan.index);
  });
}

/// The candidates, and before them those whose like was not refused in full though their small instances were: whatever a kind of layout is
/// refused for, all of them are. Where the first is refused for something else than its instances were, it tells of itself alone.
std::vector<Screened> with_unlike(const Sieve& sieve, const Estimator& estimator, Watch& watch, SearchResult& result) {
  std::vector<Screened> candidates;
  const auto unknown = [](const std::pair<std::uint64_t, std::uint32_t>& plan) {
    Screened one;
    std::tie(one.index, one.layout) = plan;
    return one;
  };
  for (const auto& plans : sieve.alike) {
    for (std::size_t i = 0; i < plans.plans.size() && !watch.stopped(); ++i) {
      const Tried tried = estimator.tried(unknown(plans.plans[i]));
      ++result.estimated;
      if (tried.plan || tried.too_large) {
        std::transform(plans.plans.begin() + static_cast<std::ptrdiff_t>(i), plans.plans.end(), std::back_inserter(candidates), unknown);
        break;
      }
      const bool of_all = tried.reason == plans.reason;
      SearchRejection& rejection = result.rejected[kReasons[static_cast<int>(Outcome::What::refused)]];
      rejection.count += of_all ? plans.plans.size() - i : 1;
      if (rejection.example.empty()) rejection.example = tried.refusal;
      if (of_all) break;
    }
  }
  candidates.insert(candidates.end(), sieve.candidates.begin(), sieve.candidates.end());
  return candidates;
}

}  // namespace

Sieve sift(const Screen& screen, const Layouts& layouts, const SearchRequest& request, Watch& watch) {
  const int threads = threads_of(request);
  std::vector<Sifter> sifters(static_cast<std::size_t>(threads), Sifter(screen, layouts, request));
  constexpr std::uint64_t kAtOnce = 64;
  const std::uint64_t all = layouts.legal.size();
  parallel_for(ceil_div(static_cast<std::int64_t>(all), kAtOnce), threads, watch, "screening", [&](std::uint64_t piece, int thread) {
    for (std::uint64_t i = piece * kAtOnce; i < std::min(all, (piece + 1) * kAtOnce); ++i)
      sifters[static_cast<std::size_t>(thread)].sift(static_cast<std::uint32_t>(i));
  });
  for (std::size_t i = 1; i < sifters.size(); ++i) sifters[0].join(std::move(sifters[i]));
  return std::move(sifters[0]).finished();
}

std::optional<Score> Scout::score(const Screened& one) const {
  const std::optional<Outcome> outcome = state_.outcome(one.index);
  if (!outcome || outcome->what != Outcome::What::stands) return {};
  return score_of(request_.goal, outcome->seconds_per_token, outcome->gpus);
}

Scouted Scout::look(Watch& watch) {
  const Sieve sieve = sift(screen_, layouts_, request_, watch);
  Scouted scouted{{}, sieve.front, sieve.fastest_too_large, !sieve.front.empty()};
  if (!sieve.plays) return scouted;  // closed forms are no candidates beside what will be played
  const auto capacity = static_cast<double>(request_.cluster.accelerator.memory_usable.value.count);
  std::vector<Screened> likely;
  for (const Screened& one : sieve.candidates)
    if (one.known && one.bytes + one.cache <= capacity) likely.push_back(one);
  std::size_t stand = 0, next = 0;
  const Estimator estimator(to_plan_, request_, plans_);
  const auto bar = [&] {
    Best best(request_.top);
    for (const auto& [index, score] : scores_)
      if (score) best.add(*score);
    return best.bar();
  };
  while (stand < request_.top && next < likely.size() && !watch.stopped()) {
    const std::size_t some = std::min(likely.size() - next, request_.top - stand);
    const Score before = bar();
    std::vector<std::optional<EstimatedPlan>> plans(some);
    parallel_for(some, threads_of(request_), watch, "estimates", [&](std::uint64_t i, int) {
      const Screened& one = likely[next + i];
      if (!state_.outcome(one.index)) state_.tell(one.index, estimator.outcome(one, true, plans[i], before));
    });
    for (std::size_t i = 0; i < some; ++i) {
      const Screened& one = likely[next + i];
      if (plans[i]) plans_.emplace(one.index, *std::move(plans[i]));
      scores_[one.index] = score(one);
      stand += scores_[one.index].has_value();
    }
    next += some;
  }
  scouted.bar = bar();
  return scouted;
}

void estimate_finalists(const Sieve& sieve, const Screen& screen, const std::function<SearchPlan(const Screened&)>& to_plan,
                        const SearchRequest& request, const std::map<std::uint64_t, EstimatedPlan>& known, Watch& watch, State& state,
                        SearchResult& result) {
  const Estimator estimator(to_plan, request, known);
  Podium podium(request, result);
  const Score known_bar = bar_of(state, request);
  const int threads = threads_of(request);
  std::atomic<std::uint64_t> estimated{0};
  const std::vector<Screened> candidates = with_unlike(sieve, estimator, watch, result);
  std::atomic<bool> enough{false};
  // Whatever the order, none is left out whose least score could be among the best. The likeliest come first: they set the bar, and are the
  // answer where not all may be estimated.
  parallel_for(candidates.size(), threads, watch, "estimates", [&](std::uint64_t i, int) {
    const Screened& one = candidates[i];
    const double least = one.known ? screen.least_seconds(one) : 0;
    if (const Layout& layout = screen.layout(one);
        one.known && podium.bar() < score_of(request.goal, least / static_cast<double>(layout.tokens), layout.gpus))
      return;
    if (estimated >= request.most_estimates) {
      enough = true;
      return;
    }
    estimated += known.count(one.index) == 0;
    std::optional<EstimatedPlan> plan;
    std::optional<Outcome> outcome = state.outcome(one.index);
    const bool stands = outcome && outcome->what == Outcome::What::stands;
    if (stands && known_bar < score_of(request.goal, outcome->seconds_per_token, outcome->gpus)) return;
    if (!outcome || stands) {
      outcome = estimator.outcome(one, sieve.plays, plan, podium.bar());
      state.tell(one.index, *outcome);
    }
    if (outcome->what != Outcome::What::stands) return podium.reject(*outcome);
    if (!plan) return;
    podium.add(*std::move(plan));
    watch.best_seconds = podium.best_seconds();
  });
  result.complete = sieve.complete && !enough;
  const std::vector<FrontOffer> offers = estimated_offers(sieve, estimator, to_plan, threads, watch);
  result.estimated += estimated + offers.size();
  find_front(offers, result);
  if (request.shards > 1) result.offers = offers;
}

}  // namespace plimsoll::searching

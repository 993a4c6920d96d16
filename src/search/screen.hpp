// The whole space composed: a microsecond or less a plan, and nothing allocated for it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "search/legality.hpp"
#include "search/separation.hpp"
#include "search/summary.hpp"

namespace plimsoll::searching {

/// Between which shares of the estimate what was composed has been, less 1 (hardware/screening.json).
struct ScreeningBound {
  double seconds_low = 0, seconds_high = 0, bytes_low = 0, bytes_high = 0;

  double least_seconds(double composed) const { return composed / (1 + seconds_high); }
  double most_seconds(double composed) const { return composed / (1 + seconds_low); }
  double least_bytes(double composed) const { return composed / (1 + bytes_high); }
  double most_bytes(double composed) const { return composed / (1 + bytes_low); }
  /// What lies in either.
  ScreeningBound operator|(const ScreeningBound& other) const {
    return {std::min(seconds_low, other.seconds_low), std::max(seconds_high, other.seconds_high), std::min(bytes_low, other.bytes_low),
            std::max(bytes_high, other.bytes_high)};
  }
};
/// Of a framework's runs (name_of(ModelCode)), or of one of the kinds below. Throws Error (internal) where the file has none.
ScreeningBound screening_bound(std::string_view framework);
inline constexpr std::string_view kOptimizerOnHost = "optimizer on the host";
inline constexpr std::string_view kMixedLayers = "layers of several kinds";
inline constexpr std::string_view kEqual = "equal stages";  ///< Layout::equal
inline constexpr std::string_view kEqualUndisturbed = "equal stages, data parallelism behind them";  ///< and Row::undisturbed
inline constexpr std::string_view kMegatronFsdp = "megatron-fsdp";
inline constexpr std::string_view kLeast = "least of blocks";  ///< what layers take at the least, not what was composed

/// What plans are ordered by: smaller is better.
struct Score {
  double first = std::numeric_limits<double>::infinity(), second = 0;

  friend bool operator<(const Score& a, const Score& b) { return a.first != b.first ? a.first < b.first : a.second < b.second; }
};
/// Seconds of a token: where all plans train as many a step, that is the order of their steps.
Score score_of(SearchGoal goal, double seconds_per_token, std::int64_t gpus);

/// A plan as screening sees it.
struct Screened {
  std::uint64_t index = 0;
  double seconds = 0, bytes = 0;  ///< bytes: without `cache`, what the allocator holds beyond its peak
  double cache = 0;
  std::uint32_t layout = 0;   ///< in Layouts::legal
  std::uint32_t refusal = 0;  ///< of one that is not known: what small instances like it were refused for; 0: nothing
  bool known = false, played = false;
};

/// What is to be done with the plans of a layout and a setting.
enum class Fate : std::uint8_t {
  composed,   ///< their summaries are made, or will be
  too_large,  ///< one that needs less is too large, or they are by the least that they take
  beaten,     ///< others are faster than they can be: no summary was made for them
};

/// The tables that plans are composed of.
class Screen {
 public:
  /// `state` outlives it.
  Screen(const Space& space, const SearchRequest& request, const Layouts& layouts, State& state);

  /// Runs the instances of every row and setting that a legal plan needs which may fit: those with smaller micro-batches and more
  /// recomputation first, since a plan that needs more than one that is too large by a margin is too large as well.
  void summarize(Watch& watch);
  /// The same for these alone, without asking whether they may fit.
  void summarize(const std::vector<std::pair<std::uint32_t, std::uint64_t>>& plans, Watch& watch);
  Fate fate(std::uint32_t layout, std::uint64_t setting) const { return fates_[layout * space_.settings() + setting]; }
  void set_fate(std::uint32_t layout, std::uint64_t setting, Fate fate) { fates_[layout * space_.settings() + setting] = fate; }
  /// Whether the plan was told to be too large by one that needs less.
  bool hopeless(std::uint32_t layout, std::uint64_t setting) const { return fate(layout, setting) == Fate::too_large; }
  /// Whether one that needs less is too large by a margin, as far as summaries are made.
  bool needs_more_than_there_is(std::uint32_t layout, std::uint64_t setting) const;
  /// Numbers of recomputed layers lie between none and all: where all may fit, none is summarised however large it is.
  bool bounds_a_depth(std::uint32_t layout, std::uint64_t setting) const;
  /// The setting whose states and their collectives are those of this one.
  std::uint64_t states_like(std::uint64_t setting) const { return static_cast<std::uint64_t>(states_like_[setting]); }
  std::uint64_t core_of(std::uint64_t setting) const { return separation_.core[setting]; }
  std::uint64_t core_setting(std::uint64_t setting) const { return separation_.cores[separation_.core[setting]]; }  ///< the setting that is its core
  /// The same setting without recomputation where numbers of recomputed layers lie between both; −1 otherwise.
  std::int64_t between(std::uint64_t setting) const {
    return space_.depths() > 1 && space_.recomputes_all(setting) ? unrecomputed_[setting] : -1;
  }
  const Summarizer& summarizer() const { return summarizer_; }
  /// Measures what settings beside their core add: before summaries are made.
  void prepare(Watch& watch);
  /// Whether the setting is legal with the layout, and the depth with both.
  bool legal(const Layout& layout, std::uint64_t setting, std::uint64_t depth) const;
  Screened screened(std::uint32_t layout, std::uint64_t setting, std::uint64_t depth) const;
  /// Calls `take` with every legal plan of a layout that is not hopeless; known or not.
  template <class Take>
  void each(std::uint32_t layout, const Take& take) const;

  ScreeningBound bound(std::uint32_t layout, std::uint64_t setting) const {
    const Layout& of = layouts_.legal[layout];
    return on_host_[setting] ? host_bound_ : of.equal && !summarizer_.mixed() ? equal_bounds_[layouts_.rows[of.row].undisturbed] : bounds_[of.kind];
  }
  /// Seconds of a step that a plan takes at the least: by what it is composed of, and by what its layers take where that is known.
  double least_seconds(const Screened& plan) const {
    const double by_layers = least_.empty() ? 0 : least_[plan.layout * space_.settings() + space_.setting_of(plan.index)];
    return std::max(bound(plan).least_seconds(plan.seconds), by_layers);
  }
  void set_least_seconds(std::uint32_t layout, std::uint64_t setting, double seconds) {
    least_.resize(layouts_.legal.size() * space_.settings());
    least_[layout * space_.settings() + setting] = seconds;
  }
  ScreeningBound bound(const Screened& plan) const { return bound(plan.layout, space_.setting_of(plan.index)); }
  std::uint64_t instances() const { return summarizer_.instances(); }
  bool can() const { return summarizer_.can(); }
  const Layout& layout(const Screened& plan) const { return layouts_.legal[plan.layout]; }
  /// What Screened::refusal stands for.
  std::string refusal(std::uint32_t number) const { return summarizer_.refusal(number); }
  /// Whether any plan's program is played: closed forms, which err otherwise, are no candidates then.
  bool plays() const;

 private:
  const Summary& summary(const Layout& layout, std::uint64_t setting) const {
    return summaries_[layout.row * separation_.cores.size() + separation_.core[setting]];
  }
  const Tail& tail(const Layout& layout, std::uint64_t setting) const {
    return tails_[layout.tail * separation_.cores.size() + tail_core_[separation_.core[setting]]];
  }
  void compose(const Layout& layout, std::uint64_t setting, Screened& plan) const;

  const Space& space_;
  const SearchRequest& request_;
  const Layouts& layouts_;
  Summarizer summarizer_;
  struct Wave;
  std::vector<Wave> waves() const;
  void summarize(const Wave& wave, Watch& watch);
  void measure_differences(Watch& watch);

  Separation separation_;
  std::vector<Summary> summaries_;                                 ///< row · cores + core
  std::vector<Tail> tails_;                                        ///< tail · cores + core; the first has nothing to add
  std::array<std::vector<Tail>, Separation::kParts> differences_;  ///< by part: row of its differences · values + value
  std::vector<std::uint32_t> tail_core_;    ///< the core that stands for this one: states and their collectives are alike
  std::vector<std::int64_t> unrecomputed_;  ///< the same setting without recomputation; −1: there is none
  std::vector<ScreeningBound> bounds_;      ///< by kind
  ScreeningBound host_bound_;               ///< of plans whose optimizer runs on the host
  std::array<ScreeningBound, 2> equal_bounds_;  ///< of those whose stages are equal; the second: and data parallelism runs behind them
  std::vector<char> on_host_;               ///< by setting: it does
  std::vector<std::int64_t> row_ranks_;     ///< by tail: data-parallel ranks of its layouts' rows
  std::vector<char> tail_made_, row_made_;  ///< by summary
  std::vector<Fate> fates_;                 ///< layout · settings + setting
  std::vector<double> least_;               ///< likewise: seconds that layers take at the least; empty where that was not asked for
  std::vector<std::int64_t> states_like_;   ///< by setting: the first whose states are alike
  std::vector<std::int64_t> smaller_;       ///< by layout: the same with the next smaller micro-batch; −1: there is none
  std::vector<std::int64_t> recomputed_;    ///< by setting: the same with everything recomputed; −1: there is none
};

inline void Screen::compose(const Layout& layout, std::uint64_t setting, Screened& plan) const {
  const Summary& s = summary(layout, setting);
  Tail more = tail(layout, setting);
  for (std::size_t part = 0; part < Separation::kParts; ++part)
    if (const std::uint32_t value = separation_.value[part][setting]; value > 0)
      more += differences_[part][separation_.row_of(part, layout) * separation_.values[part].size() + value];
  plan.known = s.known && more.known;
  if (!plan.known) plan.refusal = s.known ? more.refusal : s.refusal;
  if (!plan.known) return;
  plan.seconds = composed_seconds(s, more, layout);
  plan.bytes = composed_bytes(s, more, layout);
  plan.cache = s.cache;
  plan.played = s.played && more.played;
}

inline bool Screen::legal(const Layout& layout, std::uint64_t setting, std::uint64_t depth) const {
  if (!layouts_.settings[layout.kind][setting]) return false;
  const int recomputed = space_.recomputed_layers(depth);
  return recomputed == 0 || (space_.recomputes_all(setting) && recomputed < std::min({layout.first, layout.inner, layout.last}) &&
                             unrecomputed_[setting] >= 0);
}

template <class Take>
void Screen::each(std::uint32_t index, const Take& take) const {
  const Layout& layout = layouts_.legal[index];
  for (std::uint64_t setting = 0; setting < space_.settings(); ++setting) {
    if (!layouts_.settings[layout.kind][setting] || fate(index, setting) != Fate::composed) continue;
    Screened whole{space_.index(layout.raw, setting, 0), 0, 0, 0, index, 0, false, false};
    compose(layout, setting, whole);
    take(whole);
    if (space_.depths() == 1 || !space_.recomputes_all(setting) || unrecomputed_[setting] < 0) continue;
    Screened none = whole;
    compose(layout, static_cast<std::uint64_t>(unrecomputed_[setting]), none);
    const double most = std::min({layout.first, layout.inner, layout.last});
    for (std::uint64_t depth = 1; depth < space_.depths() && space_.recomputed_layers(depth) < most; ++depth) {
      // Layers of a chunk are alike: so many are recomputed, the others keep what they saved.
      const double share = static_cast<double>(space_.recomputed_layers(depth)) / layout.usual;
      take(Screened{whole.index + depth, none.seconds + share * (whole.seconds - none.seconds),
                    none.bytes + share * (whole.bytes - none.bytes), std::max(none.cache, whole.cache), index,
                    std::max(whole.refusal, none.refusal), whole.known && none.known, whole.played && none.played});
    }
  }
}

}  // namespace plimsoll::searching

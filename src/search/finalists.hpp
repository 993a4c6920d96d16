// From all plans to those that could be the best, and from these to the best: no plan is left out that could belong to them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "search/screen.hpp"

namespace plimsoll::searching {

/// Why closed forms are no candidates beside plans that were played.
inline constexpr const char* kUnplayed = "only a closed form is known, which does not compare with what is played";

/// The fastest plan that seems to leave so many sixteenths of the memory.
struct Roomy {
  int sixteenth = 0;
  Screened plan;
};

/// What screening leaves.
struct Sieve {
  std::vector<Screened> candidates;  ///< could be among the best: those that seem to fit, by their score, then those that are not known, then the others
  /// Not known either: of each kind of layout those whose instances were refused for the same, by index and layout.
  struct Alike {
    std::string reason;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> plans;
  };
  std::vector<Alike> alike;
  std::vector<Roomy> front;  ///< of every cluster size and sixteenth of the memory, where no roomier one is as fast
  std::uint64_t legal = 0, screened = 0, too_large = 0, too_slow = 0, unplayed = 0;
  std::uint64_t beaten = 0;  ///< never composed: others are faster than they can be
  bool plays = false;  ///< closed forms are no candidates
  Screened fastest_too_large;
  Screened smallest;    ///< of all that are known: what is nearest to fitting where nothing fits
  bool complete = true;  ///< false: more candidates than could be kept
};

/// Composes every legal plan. A plan is no candidate where even its least memory is more than there is, or where `top` plans that surely
/// fit are faster at their slowest than it is at its fastest; "surely" and "least" go as far as screening_bound says.
Sieve sift(const Screen& screen, const Layouts& layouts, const SearchRequest& request, Watch& watch);

/// What is known of the best before all summaries are made.
struct Scouted {
  Score bar;                         ///< that a plan must reach to be among the best; infinite where not enough of them stand
  std::vector<Roomy> front;          ///< the sieve's
  Screened fastest_too_large;        ///< likewise
  bool fits = false;                 ///< some plan seems to
};

/// Full estimates of the likeliest plans, each made once.
class Scout {
 public:
  /// All outlive it.
  Scout(const Screen& screen, const Layouts& layouts, const std::function<SearchPlan(const Screened&)>& to_plan, const SearchRequest& request,
        State& state)
      : screen_(screen), layouts_(layouts), to_plan_(to_plan), request_(request), state_(state) {}

  /// Composes what summaries were made for, and estimates the likeliest of it until as many stand as are asked for, or nothing more seems to fit.
  Scouted look(Watch& watch);
  /// What was estimated, by index.
  const std::map<std::uint64_t, EstimatedPlan>& plans() const { return plans_; }

 private:
  /// The score of one that stands.
  std::optional<Score> score(const Screened& one) const;

  const Screen& screen_;
  const Layouts& layouts_;
  const std::function<SearchPlan(const Screened&)>& to_plan_;
  const SearchRequest& request_;
  State& state_;
  std::map<std::uint64_t, EstimatedPlan> plans_;
  std::map<std::uint64_t, std::optional<Score>> scores_;  ///< of the plans that were asked about
};

/// Estimates candidates, the likeliest first, but for those whose least score is above the best `top`; then the front. What `state` knows of a plan that is not
/// among the best is not estimated again, nor what is `known` in full.
void estimate_finalists(const Sieve& sieve, const Screen& screen, const std::function<SearchPlan(const Screened&)>& to_plan,
                        const SearchRequest& request, const std::map<std::uint64_t, EstimatedPlan>& known, Watch& watch, State& state,
                        SearchResult& result);

}  // namespace plimsoll::searching

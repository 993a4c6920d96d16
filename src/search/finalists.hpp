// From all plans to those that could be the best, and from these to the best: no plan is left out that could belong to them.
#pragma once

#include <cstdint>
#include <functional>
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
  std::vector<Screened> candidates;  ///< could be among the best; those that are not known first, then by their least score
  /// Not known either: of each kind of layout those whose instances were refused for the same, by index and layout.
  std::vector<std::vector<std::pair<std::uint64_t, std::uint32_t>>> alike;
  std::vector<Roomy> front;  ///< of every cluster size and sixteenth of the memory, where no roomier one is as fast
  std::uint64_t legal = 0, screened = 0, too_large = 0, too_slow = 0, unplayed = 0;
  bool plays = false;  ///< closed forms are no candidates
  Screened fastest_too_large;
  bool complete = true;  ///< false: more candidates than could be kept
};

/// Composes every legal plan. A plan is no candidate where even its least memory is more than there is, or where `top` plans that surely
/// fit are faster at their slowest than it is at its fastest; "surely" and "least" go as far as screening_bound says.
Sieve sift(const Screen& screen, const Layouts& layouts, const SearchRequest& request, Watch& watch);

/// Estimates candidates by rising least score until the best `top` are certain; then the front. What `state` knows of a plan that is not
/// among the best is not estimated again.
void estimate_finalists(const Sieve& sieve, const Screen& screen, const std::function<SearchPlan(const Screened&)>& to_plan,
                        const SearchRequest& request, Watch& watch, State& state, SearchResult& result);

}  // namespace plimsoll::searching

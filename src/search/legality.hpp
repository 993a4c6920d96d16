// Which points of the space a framework runs: resolve() is the judge.
#pragma once

#include "plimsoll/error.hpp"
#include "search/layout.hpp"
#include "search/parallel.hpp"

namespace plimsoll::searching {

/// What a complaint is about: its first clause with every number as …, so that equal ones can be counted together.
std::string reason_of(const Error& error);

/// Collectives of data parallelism run by themselves behind the passes, and take the same time whatever the passes do.
bool reduces_behind_the_passes(const Strategy& resolved);

/// Judges every layout once, and every setting once for each kind of layout: whether a setting is legal depends on what a layout is made
/// of, not on its numbers (tests hold random points against resolve()). Layouts whose degrees do not divide their GPUs are told so by the
/// thousand. Throws Error (refused): more layouts than can be judged.
Layouts find_layouts(const Space& space, const SearchRequest& request, Watch& watch);

}  // namespace plimsoll::searching

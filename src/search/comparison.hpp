// Plans beside the best one: what they lose, and whether it is more than predictions miss by.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/search.hpp"

namespace plimsoll::searching {

/// A part of the step that takes longer than the best plan's.
struct Loss {
  std::string part;
  double seconds;
};
/// The largest first; gains are none.
std::vector<Loss> losses(const EstimatedPlan& plan, const EstimatedPlan& best);
/// "+1.20 s bubble, +0.40 s exposed tensor parallel": the two largest.
std::string losses_in_words(const EstimatedPlan& plan, const EstimatedPlan& best);

/// Whether their difference is smaller than measured runs of such plans have been slower than predicted.
bool equal_within_error(const EstimatedPlan& plan, const EstimatedPlan& best);
/// What would decide between two that are.
std::string deciding_experiment(const EstimatedPlan& plan, const EstimatedPlan& best);

/// Options of a plan that the best one has not, as flags.
std::string differing_options(const SearchPlan& plan, const SearchPlan& best);
/// "--tp 8 --pp 4".
std::string as_flags(const std::vector<std::pair<std::string, std::string>>& options);

}  // namespace plimsoll::searching

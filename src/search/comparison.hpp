// Plans beside the best one: what they lose, and whether it is more than predictions miss by.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plimsoll/search.hpp"

namespace plimsoll::searching {

/// What is compared of a plan: of one that was estimated here, or read from another shard's answer.
struct Steps {
  double seconds = 0;
  double tokens = 1;  ///< of a step: plans of different batches are compared as if both trained as many
  double decisive = 0;  ///< plans predicted less far apart than this share of the faster are equal (estimation::decisive_difference)
  std::vector<std::pair<std::string, double>> parts;  ///< of the step, in seconds
};
Steps steps_of(const EstimatedPlan& plan);

/// A part of the step that takes longer than the best plan's, for as many tokens.
struct Loss {
  std::string part;
  double seconds;
};
/// The largest first; gains are none. In seconds for the tokens of `best`.
std::vector<Loss> losses(const Steps& plan, const Steps& best);
/// "+1.20 s bubble, +0.40 s exposed tensor parallel": the two largest.
std::string losses_in_words(const EstimatedPlan& plan, const EstimatedPlan& best);

/// Whether they are predicted so near that more than one in ten pairs of such runs was measured in the other order.
bool equal_within_error(const Steps& plan, const Steps& best);
/// What would decide between two that are.
std::string deciding_experiment(const Steps& plan, const Steps& best);

/// Options of a plan that the best one has not, as flags.
std::string differing_options(const SearchPlan& plan, const SearchPlan& best);

}  // namespace plimsoll::searching

// Sentences about a search that its text and its documents share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plimsoll/search.hpp"

namespace plimsoll::searching {

/// "fastest: llama-3.1-8b on 8 x h100-sxm, 3.13 s a step …", or which plan was nearest where none fits; one line.
std::string answer_of(const SearchResult& result);

/// "5,760 points, 1,569 legal plans, …; 6.2 s", one line.
std::string effort_of(const SearchResult& result);

/// What a plan of the front costs in GPUs and time: GPU-seconds of a step, of a million tokens where batches are the plans' own.
double cost_of(const EstimatedPlan& plan, bool free_batch);

/// Reasons and rejections, those of most plans first.
std::vector<std::pair<std::string, const SearchRejection*>> rejections_by_count(const SearchResult& result);

}  // namespace plimsoll::searching

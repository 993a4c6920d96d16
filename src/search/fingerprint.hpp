// What a search was of: shards and resumed runs of one search have the same.
#pragma once

#include <string>

#include "search/layout.hpp"

namespace plimsoll::searching {

/// 16 hexadecimal digits over the model, the cluster, what all plans share, and the axes.
std::string fingerprint_of(const SearchRequest& request, const Space& space);

}  // namespace plimsoll::searching

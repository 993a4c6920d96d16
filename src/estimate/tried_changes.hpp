// Changes of a strategy estimated, each held against the run without it.
#pragma once

#include <vector>

#include "estimate/single_changes.hpp"
#include "plimsoll/explain.hpp"

namespace plimsoll::estimation {

/// A change with what it gives.
struct Tried {
  Change change;
  SingleChange of;
  Report report;  ///< of the run with it
};

/// Holds one change against the explained rank. Nothing where the framework or plimsoll does not take it, or (noted in the explanation) where
/// one of both is a closed form.
std::optional<Tried> compare(const Model& model, const Cluster& cluster, const SingleChange& change, Explanation& explanation);
std::vector<Tried> try_all(const Model& model, const Cluster& cluster, const std::vector<SingleChange>& changes, Explanation& explanation);

/// Those that save memory, the largest saving first.
std::vector<Tried> savings_of(std::vector<Tried> tried);

}  // namespace plimsoll::estimation

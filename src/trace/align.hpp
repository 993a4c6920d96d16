// Two sequences of named things aligned in order.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll::trace {

/// One piece of work as far as it can be recognised on both sides.
struct Piece {
  std::string key;   ///< everything that must be equal; empty: no more is known than its class
  std::string kind;  ///< its class
};

/// Pairs (index of a, index of b), ascending in a. First what is equal in the same order, as much as there is of it (Myers 1986); then,
/// between two such pairs, what is of one class, in order; then equal keys that were left over, whatever their order.
std::vector<std::pair<std::size_t, std::size_t>> align(const std::vector<Piece>& a, const std::vector<Piece>& b);

}  // namespace plimsoll::trace

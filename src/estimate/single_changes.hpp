// Changes of a strategy that are known to save memory, one at a time.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

struct SingleChange {
  std::string flag;   ///< as on the command line: "--recompute full"
  Strategy strategy;  ///< what was said, with that change
};

/// The changes that could apply; whether the framework takes one, `resolve` says.
std::vector<SingleChange> single_changes(const Strategy& said, const Strategy& resolved);

}  // namespace plimsoll::estimation

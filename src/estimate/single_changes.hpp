// Changes of a strategy that are known to save memory, one at a time.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

struct SingleChange {
  std::string flag;   ///< as on the command line: "--recompute full"
  Strategy strategy;  ///< what was said, with that change
};

/// The changes that could apply and that the framework takes: what is appended to the command line as `flag` gives `strategy`.
std::vector<SingleChange> single_changes(const Strategy& said, const Strategy& resolved, const Model& model, const Cluster& cluster);

}  // namespace plimsoll::estimation

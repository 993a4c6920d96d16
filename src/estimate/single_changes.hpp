// Changes of a strategy that are known to save memory or time, one at a time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

struct SingleChange {
  std::string flag;   ///< as on the command line: "--recompute full"
  Strategy strategy;  ///< what was said, with that change
  bool fewer_bits = false;  ///< numbers are held or multiplied in fewer bits with it
  bool larger_batch = false;  ///< a step has more sequences with it
  std::vector<std::pair<std::string, std::string>> options{};  ///< the same as `flag`
};

/// The changes that could save memory and that the framework takes: what is appended to the command line as `flag` gives `strategy`.
std::vector<SingleChange> memory_changes(const Strategy& said, const Strategy& resolved, const Model& model, const Cluster& cluster);
/// Those that could save time and are not among them.
std::vector<SingleChange> time_changes(const Strategy& said, const Strategy& resolved, const Model& model, const Cluster& cluster);
/// Those of the latter that let communication run beside the compute: the layout, and what is trained, stay.
std::vector<SingleChange> overlap_changes(const Strategy& said, const Strategy& resolved, const Model& model, const Cluster& cluster);

}  // namespace plimsoll::estimation

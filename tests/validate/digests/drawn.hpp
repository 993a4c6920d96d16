// Strategies that nobody wrote: drawn over frameworks, models, devices, degrees, releases and every key of the strategy's table.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "validate/digests/held.hpp"

namespace plimsoll::digests {

inline constexpr int kDrawn = 1000;
inline constexpr int kDrawnSlices = 8;

/// One line that could be typed.
struct Drawn {
  int number = 0;
  std::string model, cluster;
  std::vector<std::pair<std::string, std::string>> options;
};

/// The strategy of that number. Each choice is made by a hash of the number and the candidate, so that a new framework, device or key
/// changes only the strategies that come to hold it.
Drawn drawn(int number);
/// "plimsoll estimate gpt2 --on 8xmi300x --framework torchtitan --tp 2"
std::string line_of(const Drawn& drawn);
/// Values that are drawn for a key; none where it is left out of the draws.
std::vector<std::string> drawn_values(const StrategyOption& option);
/// Keys that have no values to draw, and why.
const std::vector<std::pair<std::string, std::string>>& undrawn_keys();

/// Predicts it: outcome, programs, allocated and reserved bytes of the worst rank.
Held predicted(const Drawn& drawn);
std::string dump_of(const Drawn& drawn);
/// Why it is not played; empty: it is.
std::string unplayed(const Drawn& drawn);

}  // namespace plimsoll::digests

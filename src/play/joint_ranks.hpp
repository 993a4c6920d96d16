// Ranks whose programs say themselves who meets whom: recorded while they ran together, and played against each other.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/play.hpp"

namespace plimsoll {

/// Whom a collective or transfer joins.
struct Joint {
  std::uint32_t channel = 0;  ///< a communicator: the same number in all its ranks
  std::uint32_t members = 0;  ///< ranks that meet; nobody waits for anybody where there are less than two
};

struct JointRank {
  const StepProgram* program;  ///< the peer of a send or receive (Collective::peer) is the other's index among the ranks
  Pricing pricing;
  std::vector<Joint> joints;  ///< by index of the program's collectives
};

/// Plays one step of all of them: a receive ends with its send, a collective begins when the last of its ranks comes. Empty where they wait for each
/// other for ever.
std::vector<Timeline> play_joint(const std::vector<JointRank>& ranks);

}  // namespace plimsoll

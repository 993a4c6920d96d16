// The recordings of ranks that ran together, played against each other.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/rehearse.hpp"

namespace plimsoll::rehearse {

struct JointPlay {
  std::vector<Timeline> timelines;  ///< in the order of the recordings; empty where the ranks are played each alone
  std::string why_alone;            ///< of ranks that send to each other
};

/// Plays the last step of all ranks of a world together, where any sends to another. Who a send or receive joins is noted in the programs.
JointPlay play_joint(std::vector<Recording>& recordings, const Cluster& cluster);

}  // namespace plimsoll::rehearse

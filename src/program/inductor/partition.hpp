/// What the forward graph hands to the backward graph, and what that computes again (torch/_functorch/partitioners.py of PyTorch 2.15,
/// min_cut_rematerialization_partition).
///
/// Every node of the forward is two vertices with an edge of its bytes between them, heavier the farther it is from the gradients and
/// twice as heavy where it would not reach memory otherwise; a value flows from its second vertex to its readers' first at no cost. What may not be
/// computed again hangs on the source: inputs, what is no cheap operator, what the backward has to write anyway, sums that shrink their
/// input fourfold, users far behind an operator that does not fuse. What gradients read hangs on the sink, and so does what a checkpoint
/// recomputes. The cut nearest to the sink is saved.
#pragma once

#include <vector>

#include "program/inductor/fx.hpp"

namespace plimsoll::program::inductor {

/// Placeholders stand at the front of each graph, in the order of what it is given.
struct PartitionedGraph {
  FxGraph forward;   ///< of the inputs: the results, then what is saved
  FxGraph backward;  ///< of what is saved and the tangents: a gradient of each input, or -1
};

/// Nodes of the joint graph that the forward saves, in their order.
std::vector<int> saved_values(const JointGraph& joint);
PartitionedGraph partition(const JointGraph& joint);

}  // namespace plimsoll::program::inductor

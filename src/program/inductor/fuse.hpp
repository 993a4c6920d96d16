/// Which operations become one kernel (torch/_inductor/scheduler.py, fuse_nodes; choices.py; codegen/simd.py of PyTorch 2.15).
///
/// In rounds, of all pairs that share a buffer those that may be fused are, those first that share most bytes by equal accesses: a reader
/// and what it reads at equal places, or two readers of the same places, of equal loops; a sum takes in element-wise operations over its
/// rows or over all that it sums. No pair is fused between which another kernel would have to run, nor one whose reads could have been
/// overwritten for more than it saves. In a last round loops are turned or merged to share more; a copy of all elements in another order
/// goes through them as their maker does from the first. Sums over rows and over columns of one tensor are one kernel from a size on
/// (MixOrderReduction).
#pragma once

#include <vector>

#include "program/inductor/lower.hpp"

namespace plimsoll::program::inductor {

/// Operations of one kernel, in the order in which it computes them.
struct FusedKernel {
  std::vector<int> operations;
  std::vector<int> over_rows;  ///< of them those that sum over rows where the others sum over columns; empty: no such kernel
};

/// The kernels of more than one operation.
std::vector<FusedKernel> fuse(const LoweredGraph& graph);

}  // namespace plimsoll::program::inductor

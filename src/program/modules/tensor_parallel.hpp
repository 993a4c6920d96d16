/// The collectives of tensor and sequence parallelism as torchtitan's spmd_types issues them on local tensors.
#pragma once

#include <cstdint>

#include "program/tape.hpp"

namespace plimsoll::program {

/// One rank's part of a tensor-parallel group.
struct TensorParallel {
  std::int64_t degree = 1;
  bool sequence = false;      ///< activations between the blocks are cut over the sequence
  bool asynchronous = false;  ///< products fused with their collectives (async TP): no buffer of its own for what is gathered or reduced
  bool functional = false;    ///< DTensor's functional collectives: selective checkpoints keep what they reduce-scatter

  bool on() const { return degree > 1; }
  /// A dimension cut evenly over the ranks, the first rank's share.
  std::int64_t share(std::int64_t size) const { return (size + degree - 1) / degree; }
};

/// All-gather over dimension 1 of [batch, length / t, …]; its backward reduce-scatters.
Tensor gather_sequence(const TensorParallel& group, const Tensor& x);
/// Reduce-scatter over dimension 1 of partial sums [batch, length, …]; its backward all-gathers. `pieces`, where asked for, is what a
/// functional collective sends: it lives until the result is waited for.
Tensor scatter_sequence(const TensorParallel& group, const Tensor& x, Tensor* pieces = nullptr);
/// All-reduce of partial sums; the gradient passes.
Tensor reduce_partial(const TensorParallel& group, const Tensor& x);
/// This rank's part of dimension 1 of a replicated tensor; the gradients of all parts are all-gathered.
Tensor slice_sequence(const TensorParallel& group, const Tensor& x);
/// A part of dimension 1 between zeros, a summand of the whole: an all-reduce puts the parts together. The gradient is sliced.
Tensor pad_sequence(const TensorParallel& group, const Tensor& x);
/// The input of column-parallel products, which is replicated: the gradient is all-reduced.
Tensor replicate_input(const TensorParallel& group, const Tensor& x);

}  // namespace plimsoll::program

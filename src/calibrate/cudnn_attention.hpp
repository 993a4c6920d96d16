// Fused attention by cuDNN, what PyTorch, JAX and Transformer Engine run on Hopper and later: the graphs that its flash engines know.
#pragma once

#include "calibrate/backend.hpp"
#include "calibrate/cudnn_graph.hpp"

namespace plimsoll::calibrate::cudnn {

/// Why the library has no plan of such a pass that frameworks would run, or empty. Engines may refuse it all the same.
std::string cannot(const Library& library, const Attention& attention);

/// A pass of attention and where its operands go.
class AttentionPlan {
 public:
  /// Throws Refused where no engine takes it.
  AttentionPlan(const Library& library, const Attention& attention, HeadOrder order);
  /// Memory beside the operands: the engine's own, and of the backward pass two tensors between its kernels.
  std::int64_t workspace_bytes() const { return sums_bytes_ + delta_bytes_ + plan_->workspace_bytes(); }
  /// Bytes at the beginning of the workspace that must be zero before each run.
  std::int64_t zeroed_bytes() const { return zeroed_bytes_; }
  std::string text() const { return plan_->text(); }
  void run(const AttentionCall& call, void* workspace);

 private:
  /// Those that lie in memory. Forward: Q, K, V to O and the rows' log Σ exp; backward: these and dO to dQ, dK, dV, by way of dQ in fp32
  /// and the rows' sums δ of dO·O.
  struct Operands {
    Tensor q, k, v, output, log_sum, gradient, dq, dk, dv, sums, delta;
  };
  Graph forward(const Library& library, const Attention& attention, HeadOrder order);
  Graph backward(const Library& library, const Attention& attention, HeadOrder order);

  Operands operands_;
  bool is_backward_;
  std::int64_t sums_bytes_ = 0, delta_bytes_ = 0, zeroed_bytes_ = 0;
  std::optional<Plan> plan_;
};

}  // namespace plimsoll::calibrate::cudnn

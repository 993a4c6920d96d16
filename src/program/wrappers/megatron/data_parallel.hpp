/// What Megatron-core's training loop asks of the wrapper of one model chunk, whichever it is.
/// Source: megatron/core/distributed/data_parallel_base.py of Megatron-core 0.16.1.
#pragma once

#include <cstdint>

#include "program/module.hpp"

namespace plimsoll::program {

/// DistributedDataParallel or FullyShardedDataParallel.
class MegatronDataParallel {
 public:
  virtual ~MegatronDataParallel() = default;

  /// zero_grad_buffer().
  virtual void zero_grad_buffer() = 0;
  /// In (false) or outside of no_sync: whether this backward pass is the step's last.
  virtual void set_synchronizing(bool yes) = 0;
  /// finish_grad_sync(): whatever was not reduced yet.
  virtual void finish_grad_sync() = 0;
  /// What brings the weights that the optimizer wrote to the other ranks.
  virtual void gather_parameters() = 0;
  /// start_param_sync(): what overlap_param_gather has left to the next forward pass is gathered from here on.
  virtual void start_param_sync() {}
  /// Elements of a parameter's gradient that this rank holds when the gradients are finalized.
  virtual std::int64_t gradient_elements(const Parameter& parameter) const = 0;
  /// Type of the gradients that the optimizer is given.
  virtual DType gradient_type() const = 0;
};

}  // namespace plimsoll::program

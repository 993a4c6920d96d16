/// torch.optim on the tape: states created in the first step, the temporaries of each implementation.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// optimizer.step(): parameters without a gradient are left alone.
  virtual void step() = 0;
  /// optimizer.zero_grad(set_to_none=True).
  void zero_grad();

 protected:
  Optimizer(Tape& tape, std::vector<Tensor> parameters) : tape_(tape), parameters_(std::move(parameters)) {}
  /// Parameters that have a gradient.
  std::vector<Tensor> with_gradients() const;

  Tape& tape_;
  std::vector<Tensor> parameters_;  ///< trainable, in registration order
};

/// Throws Error (refused): an optimizer or an implementation that is not modelled. `state_type` unset: states have the parameter's type.
std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind, OptimizerImpl implementation, Tape& tape, std::vector<Tensor> parameters,
                                          std::optional<DType> state_type = {});

/// Whether it is one of bitsandbytes' optimizers.
bool is_bitsandbytes(OptimizerKind kind);

/// The tensors of the trainable parameters below `root`, in registration order.
std::vector<Tensor> trainable_tensors(Module& root);

/// Launches of a foreach operator over `tensors` (multi_tensor_apply): kernels of at most 2,240 blocks and as many tensors as `depth` lists
/// allow.
void launch_foreach(Tape& tape, const std::vector<Tensor>& tensors, int depth, int written);

}  // namespace plimsoll::program

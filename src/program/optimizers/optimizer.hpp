/// torch.optim on the tape: states created in the first step, the temporaries of each implementation.
#pragma once

#include <cstdint>
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
  void step();
  /// optimizer.zero_grad(set_to_none=True).
  void zero_grad();
  /// Bytes of its states that lie in managed memory (bitsandbytes' paged optimizers).
  virtual std::int64_t managed_bytes() const { return 0; }
  /// Its states go to the host until fetch_states(). Throws Error (refused): of this optimizer they are not told.
  void rest_states();
  void fetch_states();
  /// Says that those find no room on the device beside all else: each step fetches them from the host anew.
  virtual void fetch_managed() {}

 protected:
  virtual void do_step() = 0;
  /// The tensors of its states; none yet before the first step.
  virtual std::vector<Tensor> states();
  Optimizer(Tape& tape, std::vector<Tensor> parameters) : tape_(tape), parameters_(std::move(parameters)) {}
  /// Parameters that have a gradient.
  std::vector<Tensor> with_gradients() const;

  Tape& tape_;
  std::vector<Tensor> parameters_;  ///< trainable, in registration order
};

/// A state of zeros.
Tensor state_of(Tape& tape, const Dims& sizes, DType type);

/// Throws Error (refused): an optimizer or an implementation that is not modelled. `state_type` unset: states have the parameter's type.
std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind, OptimizerImpl implementation, Tape& tape, std::vector<Tensor> parameters,
                                          std::optional<DType> state_type = {});

/// Whether it is one of bitsandbytes' optimizers.
bool is_bitsandbytes(OptimizerKind kind);
/// Of one of bitsandbytes' that has 8-bit states the same with fp32 ones (optim_bits 32), where there is one; else `kind` itself.
OptimizerKind with_wide_states(OptimizerKind kind);

/// The tensors of the trainable parameters below `root`, in registration order.
std::vector<Tensor> trainable_tensors(Module& root);

/// _group_tensors_by_device_and_dtype: the type that is met last comes first, as libstdc++'s std::unordered_map iterates.
std::vector<std::vector<Tensor>> grouped_by_type(const std::vector<Tensor>& tensors);

/// What a foreach operator does to its lists; each is as long as the tensors that it is launched over.
struct Foreach {
  MultiTensor::Function function = MultiTensor::Function::map;
  int made = 0;                          ///< of the lists that are written, new ones: they are not read
  bool scalars = false;                  ///< takes a number for every tensor
  std::optional<DType> written_as = {};  ///< type of the lists that are written; empty: of all
};
/// Launches of a foreach operator over `depth` lists like `tensors`, of which it writes `written` (multi_tensor_apply), type by type.
void launch_foreach(Tape& tape, const std::vector<Tensor>& tensors, int depth, int written, const Foreach& options = {});
/// The same over lists of so many elements each, of `type`, where no optimizer's host works (the wrappers' copies).
void launch_foreach(Tape& tape, const std::vector<std::int64_t>& elements, DType type, int depth, int written, const Foreach& options = {});

}  // namespace plimsoll::program

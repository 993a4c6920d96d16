/// DeepSpeed's optimizer wrappers: what deepspeed.initialize puts around a model and its optimizer. Source: deepspeed/runtime of
/// DeepSpeed 0.19.8, and of others what DeepSpeedRelease says.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/optimizers/optimizer.hpp"
#include "program/tape.hpp"
#include "program/wrappers/deepspeed/release.hpp"

namespace plimsoll::program {

/// Parameters by groups of the optimizer.
using ParameterGroups = std::vector<std::vector<std::shared_ptr<Parameter>>>;

struct DeepSpeedSettings {
  DeepSpeedOptions json;
  int stage = 0;
  int ranks = 1;  ///< data-parallel ranks
  int rank = 0;   ///< of them
  std::int64_t micro_batches = 1;
  bool accumulate_fp32 = false;  ///< data_types.grad_accum_dtype wider than the weights
  bool offload_optimizer = false, offload_parameters = false;
  bool clips = true;         ///< gradient_clipping
  bool unmanaged_type = false;  ///< the model came in 16 bits, and the JSON switches neither bf16 nor fp16 on
  bool pinned = true;        ///< host memory of the offload is page-locked
  DeepSpeedRelease release;  ///< whose rules
  OptimizerKind optimizer = OptimizerKind::adamw;
  OptimizerImpl implementation = OptimizerImpl::fused;
  /// ZeRO-3's leaf modules (runtime/zero/leaf_module_config.py): gathered, released and reduced as one, their children without hooks.
  std::vector<Module*> leaf_modules = {};
  /// PEFT has put adapters into the model: what is trained came behind zero.Init, and two modules of PEFT's (PeftModel, LoraModel) call the
  /// network's.
  bool adapters = false;
};

/// deepspeed.runtime.base_optimizer.DeepSpeedOptimizer, with what DeepSpeedEngine does around it.
class DeepSpeedOptimizer {
 public:
  virtual ~DeepSpeedOptimizer() = default;
  /// Before loss.backward(); `boundary`: of the step's last micro-batch.
  virtual void before_backward(bool boundary) { boundary_ = boundary; }
  /// Whether engine.backward multiplies the loss by a scale.
  virtual bool scales_loss() const { return false; }
  /// DeepSpeedEngine._backward_epilogue.
  virtual void after_backward() = 0;
  /// optimizer.step() and zero_grad() at the boundary.
  virtual void step() = 0;

 protected:
  DeepSpeedOptimizer(Tape& tape, const DeepSpeedSettings& settings) : tape_(tape), settings_(settings) {}

  Tape& tape_;
  DeepSpeedSettings settings_;
  bool boundary_ = true;
};

/// The optimizer that updates the fp32 tensors `masters`: FusedAdam, FusedLion or one of torch.optim.
std::unique_ptr<Optimizer> make_deepspeed_optimizer(const DeepSpeedSettings& settings, Tape& tape, std::vector<Tensor> masters);

/// DeepSpeedCPUAdam, or whatever else steps there, over so many fp32 masters of the host, whose gradients unscale_and_clip_grads multiplies
/// there first, unless `idle`: there is nothing to multiply by.
std::unique_ptr<Optimizer> make_deepspeed_host_optimizer(const DeepSpeedSettings& settings, Tape& tape, std::int64_t elements,
                                                         bool idle = false);

/// A parameter as a view of a flat buffer (param.data = flat.narrow(…).view(shape)).
Tensor parameter_on(Tape& tape, const Tensor& flat, const Parameter& slot);

/// target.copy_(source) of contiguous tensors: a memory copy, or a kernel where their types differ.
void copy_elements(Tape& tape, std::int64_t elements, DType from, DType to);

/// torch's flatten_dense_tensors: one new tensor of the widest type among them, or the tensor itself when there is only one.
Tensor flatten(Tape& tape, const std::vector<Tensor>& tensors);

/// A Python list dies: its last element goes first.
void drop_list(std::vector<Tensor>& list);

/// x.to(type) outside autograd: x itself when it has that type.
Tensor converted(const Tensor& x, DType type);

/// runtime/utils.py, has_inf_or_nan: its largest and its smallest element (before 0.19.6 elementwise in fp32).
Tensor check_finite(const Tensor& x, const DeepSpeedSettings& settings);

/// torch.linalg.vector_norm(x.to(type)): a scalar.
Tensor norm_in(const Tensor& x, DType type);

}  // namespace plimsoll::program

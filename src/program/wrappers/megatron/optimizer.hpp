/// Megatron-core's optimizers over torch.optim: fp32 main parameters, whole or sharded over the data-parallel ranks.
/// Sources: megatron/core/optimizer/{optimizer,distrib_optimizer,clip_grads}.py and cpu_offloading/hybrid_optimizer.py of Megatron-core
/// 0.16.1.
#pragma once

#include <memory>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "program/optimizers/optimizer.hpp"
#include "program/wrappers/megatron/ddp.hpp"

namespace plimsoll::program {

/// A parameter as the optimizer sees it.
struct MegatronMain {
  Tensor parameter;    ///< fp32: a copy where the model's parameter is 16-bit, or this rank's part
  Tensor source;       ///< the part of the buffer's gradients
  bool decays = true;  ///< matrices have weight decay
  Tensor shard = {};   ///< torch's FSDP2: what it is a copy of, beside which gradients lie until they are copied; else undefined
};

/// Whether lists of tensors are one kernel's: Transformer Engine's, or Apex', which is there where its kernels for weight gradients or for
/// the softmax are, and in releases before Megatron-core. Without both Megatron-core has loops of its own over the tensors
/// (local_multi_tensor_l2_norm, local_multi_tensor_scale of megatron/core/utils.py).
bool takes_lists(const Strategy& strategy);

/// get_grad_norm_fp32, by either.
void megatron_grad_norm(Tape& tape, const std::vector<Tensor>& gradients, bool lists);

/// One of the chained optimizers: of the dense parameters or of the experts'.
class MegatronOptimizer {
 public:
  /// `buffers`: one per model chunk. `shard_rank`: whose share of each bucket a distributed optimizer owns.
  MegatronOptimizer(Tape& tape, const Strategy& strategy, const std::vector<MegatronParameterBuffer*>& buffers, std::int64_t shard_rank);
  /// Of main parameters that a wrapper (Megatron-FSDP) made, and whose gradients it attaches and drops.
  MegatronOptimizer(Tape& tape, const Strategy& strategy, const std::vector<MegatronMain>& mains);
  /// Of 16-bit parameters that torch's FSDP2 cut up, in registration order (Float16OptimizerWithFloat16Params).
  MegatronOptimizer(Tape& tape, const Strategy& strategy, const std::vector<Tensor>& shards);

  /// The loss scale, a tensor of one element.
  const Tensor& scale() const { return scale_; }
  /// Gradients of the main parameters from the buffers.
  void prepare_grads();
  /// _unscale_main_grads_and_check_for_nan, where losses are scaled: the host asks whether any gradient is infinite.
  void unscale_grads();
  /// Of the main parameters, once they are prepared.
  std::vector<Tensor> gradients() const;
  /// clip_grad_by_total_norm_fp32, in place.
  void scale_grads();
  void step_with_ready_grads();
  /// Drops the fp32 copies of 16-bit gradients, which live until the next step begins.
  void zero_grad();

 private:
  struct ParameterGroup {
    std::vector<MegatronMain> mains;
    std::unique_ptr<Optimizer> optimizer;
  };

  void make_scalars(const Strategy& strategy);
  static Tensor copied_to_fp32(const Tensor& parameter);
  void copy_to_host(const std::vector<Tensor>& parameters, bool kept);
  void step_on_host();
  void scale_one_by_one(const std::vector<Tensor>& gradients);
  void make_remainders();
  void copy_by_lists();
  void make_torch_optimizer(ParameterGroup& group, const Strategy& strategy);
  void add(ParameterGroup& group, const BufferedParameter& entry, std::int64_t elements);
  static std::vector<Tensor> whole(const std::vector<MegatronParameterBuffer*>& buffers);
  std::vector<std::pair<const BufferedParameter*, std::int64_t>> owned(const std::vector<MegatronParameterBuffer*>& buffers,
                                                                       std::int64_t shard_rank) const;

  Tape& tape_;
  bool distributed_;
  bool attaches_gradients_ = true;  ///< else the wrapper does
  /// use_precision_aware_optimizer: Transformer Engine's FusedAdam sees the 16-bit parameters themselves and keeps what they lack of fp32,
  /// 16 bits each (store_param_remainders); gradients are read from their buffer (decoupled_grad).
  bool keeps_remainders_ = false;
  /// optimizer_cpu_offload of the whole model (optimizer_offload_fraction 1): HybridDeviceOptimizer keeps fp32 parameters and moments on
  /// the host, steps there, and writes the 16-bit parameters, without overlap_cpu_optimizer_d2h_h2d.
  bool on_host_ = false;
  std::unique_ptr<Optimizer> host_;  ///< HybridDeviceOptimizer's on the host
  bool scales_losses_ = false;  ///< fp16
  bool lists_ = true;           ///< takes_lists
  bool apex_ = false;           ///< Megatron before Megatron-core: multi-tensor kernels copy between the types
  DType model_type_ = DType::bf16;
  bool scales_copies_;  ///< without them fp16 weights are written by multi_tensor_scale, through a product of its own each
  Tensor scale_;
  std::vector<Tensor> remainders_;      ///< made in the first step
  std::vector<Tensor> scalars_;         ///< the loss scaler's factors, overflow flags
  std::vector<ParameterGroup> groups_;  ///< with weight decay, without
};

}  // namespace plimsoll::program

// torchtune's single-device and FSDP2 recipes: 16-bit weights without a master, chunked loss.
#include "framework/catalogue.hpp"

namespace plimsoll::framework {

Entry torchtune() {
  FrameworkProfile p;
  p.name = "torchtune";
  p.title = "torchtune";
  p.source = "torchtune's recipes and configs";
  p.code = ModelCode::torchtune;
  p.bf16 = Precision::pure_bf16;
  p.data_parallel = DataParallel::fsdp2;
  p.optimizer_impl = OptimizerImpl::fused;
  p.loss = LossKernel::chunked;
  p.clip_grad_norm = false;
  p.kinds = {DataParallel::none, DataParallel::fsdp2};
  p.attentions = {AttentionKernel::sdpa, AttentionKernel::flash, AttentionKernel::memory_efficient};
  p.losses = {LossKernel::chunked, LossKernel::cross_entropy};
  p.recomputes = {Recompute::Kind::none, Recompute::Kind::full};
  p.low_precisions = {LowPrecision::none};
  p.adapters = p.offload_activations = true;
  p.fused_rms_norm = true;
  return {p, nullptr, nullptr, nullptr};
}

}  // namespace plimsoll::framework

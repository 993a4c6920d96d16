// llm-foundry: MPT models under Composer, FSDP1 with autocast.
#include "framework/catalogue.hpp"

namespace plimsoll::framework {

Entry llm_foundry() {
  FrameworkProfile p;
  p.name = "llm-foundry";
  p.title = "llm-foundry on Composer";
  p.aliases = {"composer"};
  p.source = "llm-foundry's benchmarking scripts, 2023-05 to 2024-01";
  p.code = ModelCode::mpt;
  p.bf16 = Precision::fsdp_mixed_bf16;
  p.fp16 = Precision::fsdp_mixed_fp16;
  p.data_parallel = DataParallel::fsdp1;
  p.fsdp = DataParallel::fsdp1;
  p.optimizer_impl = OptimizerImpl::for_loop;  // DecoupledAdamW is a Python loop over the parameters
  p.attention = AttentionKernel::flash;
  p.kinds = {DataParallel::none, DataParallel::ddp, DataParallel::fsdp1};
  p.attentions = {AttentionKernel::flash, AttentionKernel::eager};
  p.losses = {LossKernel::cross_entropy};
  p.recomputes = {Recompute::Kind::none, Recompute::Kind::full};
  p.low_precisions = {LowPrecision::none};
  p.fused_qkv = true;
  return {p, nullptr, nullptr, nullptr};
}

}  // namespace plimsoll::framework

// torchtune's single-device and FSDP2 recipes: 16-bit weights without a master, chunked loss.
#include "framework/catalogue.hpp"

namespace plimsoll::framework {

namespace {

/// custom_sharded_layers of the full recipes' configs for Llama 3: its vocabulary is large.
void complete_torchtune(Strategy& s, const Model& model) {
  const bool large_vocabulary = model.model_type == "llama" && model.vocab_size > 100'000 && !model.tied_embeddings;
  if (s.data_parallel != DataParallel::fsdp2 || !s.fsdp.units.empty() || s.lora || !large_vocabulary) return;
  s.fsdp.units = {"tok_embeddings", "output"};
  s.assumed.push_back("fsdp.units: tok_embeddings, output (the recipe's custom_sharded_layers)");
}

}  // namespace

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
  return {p, nullptr, complete_torchtune, nullptr};
}

}  // namespace plimsoll::framework

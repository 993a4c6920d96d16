// TorchTitan: FSDP2 with tensor, context, expert and pipeline parallelism over plain PyTorch modules.
#include "framework/torchtitan.hpp"

#include "framework/catalogue.hpp"

namespace plimsoll::framework {

bool torchtitan_ties(const TitanRelease& release, const Model& model) {
  return model.tied_embeddings && (model.model_type != "llama" || release.ties_llama());
}

TitanRelease titan_release(const Strategy& s) { return TitanRelease(s.releases.of(Package::torchtitan).date()); }

AttentionKernel torchtitan_attention(const Strategy& s, const Model& model) {
  const bool latent = model.model_type.rfind("deepseek", 0) == 0;  // flavors 16B to 671B say flex since there are any
  if (!titan_release(s).is_0_3()) return latent && s.cp == 1 ? AttentionKernel::flex : AttentionKernel::sdpa;
  if (s.cp > 1) return AttentionKernel::sdpa;
  return model.model_type == "gpt_oss" ? AttentionKernel::flash_varlen : AttentionKernel::flex;
}

LossKernel torchtitan_loss(const Strategy& s) {
  if (titan_release(s).is_0_3()) return LossKernel::chunked;
  if (s.compile == Strategy::Compile::blocks) return LossKernel::compiled;
  return s.loss_chunks > 0 ? LossKernel::chunked : LossKernel::cross_entropy;
}

namespace {

void adjust(FrameworkProfile& p, const Strategy& s) {
  p.fused_rms_norm = s.releases.of(Package::torch).since(2, 8);  // nn.RMSNorm decomposed before torch 2.8
  const TitanRelease release = titan_release(s);
  p.cudnn_attention_from = release.cudnn_attention_from();
  p.fused_qkv = s.titan.fused_qkv.value_or(release.is_0_3());
  p.stages = release.counts_ends() ? StageSplit::counted_ends : StageSplit::middle;
}

void complete(Strategy& s, const Model&) {
  auto& titan = s.titan;
  const bool recent = titan_release(s).is_0_3();
  if (titan.spmd_backend.empty()) {
    titan.spmd_backend = recent && s.cp == 1 ? "spmd_types" : "partial_dtensor";
    if (recent && s.cp > 1) s.assumed.push_back("spmd_backend: partial_dtensor (spmd_types has no context parallelism of this attention)");
  }
  if (!titan.fused_qkv) titan.fused_qkv = recent;
  if (!titan.rope_positions_given) titan.rope_positions_given = recent;
  if (!titan.compiled_loss) titan.compiled_loss = recent && s.compile == Strategy::Compile::blocks;  // compile.components: model and loss
  if (!s.loss_parallel) s.loss_parallel = s.tp > 1;
  if (!s.sequence_parallel) s.sequence_parallel = s.tp > 1;  // ParallelismConfig.enable_sequence_parallel
  if (s.ep > 1 && s.moe.dispatcher.empty()) s.moe.dispatcher = "alltoall";
  if (s.fsdp.units.empty() && s.data_parallel == DataParallel::fsdp2) {
    const bool apart = titan_release(s).wraps_ends();
    s.fsdp.units = apart ? std::vector<std::string>{"tok_embeddings", "layers.*", "norm+lm_head"} : std::vector<std::string>{"layers.*"};
    s.assumed.push_back(apart ? "fsdp.units: tok_embeddings, layers.*, norm+lm_head"
                               : "fsdp.units: layers.* under a root of embedding, norm and head");
  }
}

void check(const Strategy& s, const Model& model, Complaints& complaints) {
  // Decoder.Config.update_from_config: "Weight tying is not supported with Pipeline Parallel."
  if (s.pp > 1 && torchtitan_ties(titan_release(s), model))
    complaints.add("torchtitan has no pipeline of a model whose embedding and head are one table", "set pp 1 or tie_embeddings false");
  // torch.distributed.pipelining refuses fewer micro-batches than stages.
  const bool single_stage = s.pp_schedule == "1f1b" || s.pp_schedule == "gpipe";
  const std::int64_t per_run = s.grad_accum > 0 ? s.micro_batches / s.grad_accum : s.micro_batches;
  if (s.pp > 1 && single_stage && per_run < s.pp)
    complaints.add(
        "torchtitan runs " + std::to_string(s.pp) + " pipeline stages with at least as many micro-batches, not " + std::to_string(per_run),
        "raise global_batch or lower micro_batch");
  // full_dtensor.validate_config.
  if (s.cp > 1 && s.titan.spmd_backend == "spmd_types")
    complaints.add("torchtitan's spmd_types runs context parallelism with flex_attention alone", "choose spmd_backend partial_dtensor");
  if (s.ep > 1 && (s.dp_shard * s.cp * s.tp) % s.ep != 0)
    complaints.add("ep " + std::to_string(s.ep) + " does not divide dp_shard · cp · tp = " + std::to_string(s.dp_shard * s.cp * s.tp),
                   "choose an ep that does");
}

}  // namespace

Entry torchtitan() {
  FrameworkProfile p;
  p.name = "torchtitan";
  p.title = "TorchTitan";
  p.aliases = {"titan"};
  p.source = "torchtitan 0.3.0 on torch 2.15; 2024-12 on torch 2.6";
  p.code = ModelCode::torchtitan;
  p.bf16 = Precision::fsdp_mixed_bf16;
  p.data_parallel = DataParallel::fsdp2;
  p.fsdp_reduce = DType::fp32;
  p.optimizer_impl = OptimizerImpl::fused;
  p.loss = LossKernel::cross_entropy;
  p.recompute = Recompute::Kind::operators;
  p.kinds = {DataParallel::none, DataParallel::ddp, DataParallel::fsdp2};
  p.attentions = {AttentionKernel::sdpa,
                  AttentionKernel::flash,
                  AttentionKernel::flash_varlen,
                  AttentionKernel::flex,
                  AttentionKernel::memory_efficient,
                  AttentionKernel::cudnn};
  p.optimizers = {OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::muon};  // OptimizersContainer._resolve_optimizer_factory
  p.losses = {LossKernel::cross_entropy, LossKernel::chunked, LossKernel::compiled};
  p.recomputes = {Recompute::Kind::none, Recompute::Kind::full, Recompute::Kind::operators, Recompute::Kind::alternate};
  p.low_precisions = {LowPrecision::none, LowPrecision::fp8, LowPrecision::mxfp8, LowPrecision::nvfp4};
  p.schedules = {"1f1b", "gpipe", "interleaved-1f1b", "interleaved-zero-bubble", "zbv", "dualpipev"};
  p.tensor = p.context = p.expert = p.sequence_parallel = true;
  p.fused_rms_norm = p.fused_qkv = true;
  return {p, adjust, complete, check};
}

}  // namespace plimsoll::framework

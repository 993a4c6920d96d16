// Megatron-core and the launchers over it: Megatron-LM, Megatron-Bridge, NeMo, Primus.
#include "framework/megatron.hpp"

#include "framework/catalogue.hpp"

namespace plimsoll::framework {
namespace {

void adjust(FrameworkProfile& p, const Strategy& s) {
  const bool local = s.megatron.layer_spec == "local";
  p.code = local ? ModelCode::megatron_local : ModelCode::megatron_te;
  p.fused_rms_norm = !local;
  p.fused_gated_mlp = true;  // bias_swiglu_fusion
  p.fused_qkv = true;
}

/// The linears that LoRA(…) of NeMo and of Megatron-Bridge adapts when it is told none.
void complete_adapters(Strategy& s) {
  if (!s.lora || !s.lora->targets.empty()) return;
  s.lora->targets = {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"};
  s.assumed.push_back("lora.target_modules: linear_qkv, linear_proj, linear_fc1, linear_fc2 (the launcher's LoRA)");
}

void complete(Strategy& s, const Model&) {
  complete_adapters(s);
  auto& megatron = s.megatron;
  const bool local = megatron.layer_spec == "local";
  const MegatronRelease release = megatron_release(s);
  const bool apex = !release.core();  // whose kernels Megatron of that time is run with
  if (!megatron.overlap_grad_reduce) megatron.overlap_grad_reduce = false;
  if (!megatron.overlap_param_gather) megatron.overlap_param_gather = false;
  if (!megatron.align_param_gather) megatron.align_param_gather = false;
  if (!megatron.defer_embedding_wgrad_compute) megatron.defer_embedding_wgrad_compute = false;
  if (!megatron.gradient_accumulation_fusion && s.data_parallel == DataParallel::fsdp2) megatron.gradient_accumulation_fusion = false;
  if (!megatron.gradient_accumulation_fusion)
    megatron.gradient_accumulation_fusion = apex ? release.fuses_weight_gradients() && s.grad_dtype == DType::fp32 : !local;
  if (!megatron.masked_softmax_fusion) megatron.masked_softmax_fusion = s.framework == "megatron-lm" || !local;
  if (!megatron.rope_fusion) megatron.rope_fusion = !local;
  if (!megatron.bias_swiglu_fusion) megatron.bias_swiglu_fusion = true;
  if (megatron.cp_comm_type.empty()) megatron.cp_comm_type = "p2p";
  if (s.data_parallel == DataParallel::megatron_fsdp && megatron.sharding == MegatronOptions::Sharding::automatic) {
    megatron.sharding = MegatronOptions::Sharding::optim_grads_params;
    s.assumed.push_back("data_parallel_sharding_strategy: optim_grads_params");
  }
  if (s.moe.dispatcher.empty()) s.moe.dispatcher = "alltoall";
  if (!s.moe.permute_fusion) s.moe.permute_fusion = !local && s.moe.grouped_gemm;  // the launchers' recipes set it
  if (s.recompute.kind == Recompute::Kind::selective && s.recompute.modules.empty()) s.recompute.modules = {"core_attn"};
  if (s.recompute.kind == Recompute::Kind::full && s.recompute.method == Recompute::Method::none) {
    s.recompute.method = Recompute::Method::uniform;
    s.recompute.layers = 1;
    s.assumed.push_back("recompute_method: uniform, one layer per chunk");
  }
}

/// _get_optimizer_overlap_cfgs of NeMo's MegatronCommOverlapCallback and of Megatron-Bridge's CommOverlapConfig.
void complete_buckets(Strategy& s) {
  constexpr std::int64_t kBucket = 128 * 1024 * 1024;
  if (s.data_parallel != DataParallel::megatron_distopt || s.dp * s.cp == 1) return;
  if (!s.megatron.align_param_gather) s.megatron.align_param_gather = s.pp > 1 && s.vp > 1 && *s.megatron.overlap_param_gather;
  if (s.megatron.ddp_bucket_size == 0) s.megatron.ddp_bucket_size = kBucket;
}

/// The launchers turn overlap of both collectives on; Megatron-core itself does not.
void complete_overlap(Strategy& s) {
  if (!s.megatron.overlap_grad_reduce) s.megatron.overlap_grad_reduce = s.comm_overlap.value_or(true);
  if (!s.megatron.overlap_param_gather)
    s.megatron.overlap_param_gather = s.comm_overlap.value_or(true) && s.data_parallel == DataParallel::megatron_distopt;
}

void complete_overlapped(Strategy& s, const Model& model) {
  if (s.lora && s.lora->r == 0) {
    s.lora->r = 32;
    s.assumed.push_back("lora.r: 32 (the launcher's LoRA)");
  }
  complete_overlap(s);
  complete(s, model);
}

/// Whether the launcher's recipe sets fp8_param_gather: bf16_with_fp8_mixed and bf16_with_fp8_current_scaling_mixed do,
/// bf16_with_fp8_subchannel_scaling_mixed does not, bf16_with_mxfp8_mixed does in Megatron-Bridge (mixed_precision.py of both).
bool gathers_in_8_bits(const Strategy& s) {
  if (s.low_precision == LowPrecision::mxfp8) return s.framework == "megatron-bridge" && s.data_parallel == DataParallel::megatron_distopt;
  return s.low_precision == LowPrecision::fp8 && s.fp8_scaling != Fp8Scaling::blockwise;
}

void complete_recipe(Strategy& s, const Model& model) {
  if (gathers_in_8_bits(s) && !s.fp8_params) {
    s.fp8_params = true;
    s.assumed.push_back("fp8_params: true (fp8_param_gather of the launcher's recipes)");
  }
  complete_overlap(s);
  complete_buckets(s);
  complete_overlapped(s, model);
}

/// primus_pipeline.md: "some configs conflict with Primus-pipeline, need to be config as listed".
void complete_split_backward(Strategy& s) {
  auto& m = s.megatron;
  const auto take = [&](std::optional<bool>& option, bool value, const char* name) {
    if (option) return;
    option = value;
    s.assumed.push_back(std::string(name) + (value ? ": true" : ": false") + " (Primus' pipelines that split backward need it)");
  };
  take(m.gradient_accumulation_fusion, true, "gradient_accumulation_fusion");
  take(m.overlap_grad_reduce, false, "overlap_grad_reduce");
  take(m.overlap_param_gather, false, "overlap_param_gather");
}

/// Of Primus' shipped configs 220 of 269 turn gradient_accumulation_fusion off (AMD-AGI/Primus fd1eeabb, examples/megatron/configs).
void complete_primus(Strategy& s, const Model& model) {
  if (splits_backward(s)) complete_split_backward(s);
  if (!s.megatron.gradient_accumulation_fusion) {
    s.megatron.gradient_accumulation_fusion = false;
    s.assumed.push_back("gradient_accumulation_fusion: false (nearly all of Primus' configs)");
  }
  complete_overlapped(s, model);
}

/// validate_args of Megatron-LM (training/arguments.py) for --use-torch-fsdp2.
void check_torch_fsdp2(const Strategy& s, const Model& model, Complaints& complaints) {
  if (s.data_parallel != DataParallel::fsdp2) return;
  const auto without = [&](bool said, const char* what, const char* instead) {
    if (said) complaints.add(std::string("torch's FSDP2 under Megatron goes without ") + what + " (validate_args raises)", instead);
  };
  without(s.pp > 1, "a pipeline", "set pp to 1");
  without(s.ep > 1, "expert parallelism", "set ep to 1");
  without(*s.megatron.gradient_accumulation_fusion, "gradient_accumulation_fusion", "set it to false");
  without(s.precision == Precision::mixed_fp16, "fp16", "use bf16");
  without(model.tied_embeddings, "embeddings that are the output layer's weights", "set data_parallel megatron-fsdp or megatron-distopt");
}

void check(const Strategy& s, const Model& model, Complaints& complaints) {
  check_torch_fsdp2(s, model, complaints);
  if (s.offload.activations && s.pp > 1)
    complaints.add("Megatron-core offloads no activations of pipeline stages (TransformerConfig raises)", "set pp to 1 or offload none");
  if (s.offload.activations && s.recompute.kind != Recompute::Kind::none)
    complaints.add("Megatron-core offloads no activations that are recomputed (TransformerConfig raises)", "leave one of them out");
  if (model.has_experts() && s.tp > 1 && !s.sequence_parallel.value_or(false))
    complaints.add(
        "Megatron-core trains a mixture of experts on several tensor-parallel ranks with sequence parallelism alone (MoELayer raises)",
        "set sequence_parallel, or tp to 1");
  if (*s.megatron.defer_embedding_wgrad_compute && s.pp == 1)
    complaints.add("defer_embedding_wgrad_compute needs a pipeline (ModelParallelConfig raises)", "set pp to more than 1 or leave it out");
  if (*s.megatron.defer_embedding_wgrad_compute && !*s.megatron.gradient_accumulation_fusion)
    complaints.add("defer_embedding_wgrad_compute needs gradient_accumulation_fusion (ModelParallelConfig raises)",
                   "set both or leave it out");
  if (splits_backward(s) && !*s.megatron.gradient_accumulation_fusion)
    complaints.add("Primus' " + s.pp_schedule + " needs gradient_accumulation_fusion (primus_pipeline.md)", "set it or leave it out");
  if (splits_backward(s) && (*s.megatron.overlap_grad_reduce || *s.megatron.overlap_param_gather))
    complaints.add("Primus' " + s.pp_schedule + " conflicts with overlap_grad_reduce and overlap_param_gather (primus_pipeline.md)",
                   "set both to false or leave them out");
  if (splits_backward(s) && s.vp == 2 && model.tied_embeddings)
    complaints.add("Primus' " + s.pp_schedule + " has the embedding and the head on one rank, whose shared weight it does not know",
                   "choose zb-h1 or 1f1b");
  if (s.moe.delay_wgrad && !*s.moe.a2a_overlap)
    complaints.add("delay_wgrad_compute needs overlap_moe_expert_parallel_comm (TransformerConfig raises)", "set both or leave it out");
  if (*s.moe.a2a_overlap && s.ep == 1)
    complaints.add("overlap_moe_expert_parallel_comm needs expert parallelism (TransformerConfig raises)",
                   "set ep to more than 1 or leave it out");
  if (*s.moe.a2a_overlap && s.pp > 1 && s.vp == 1)
    complaints.add("overlap_moe_expert_parallel_comm needs virtual pipeline stages (TransformerConfig raises)",
                   "set vp to more than 1 or leave it out");
  if (*s.moe.a2a_overlap && s.recompute.kind == Recompute::Kind::full)
    complaints.add("overlap_moe_expert_parallel_comm recomputes no whole layers (TransformerConfig raises)",
                   "recompute modules, or leave it out");
  if (*s.megatron.overlap_param_gather && s.data_parallel != DataParallel::megatron_distopt &&
      s.data_parallel != DataParallel::megatron_fsdp)
    complaints.add("overlap_param_gather needs the distributed optimizer", "set data_parallel megatron-distopt or leave it out");
  if (*s.megatron.overlap_param_gather && !*s.megatron.overlap_grad_reduce)
    complaints.add("overlap_param_gather needs overlap_grad_reduce", "set both or leave it out");
  const bool of_fsdp = s.megatron.sharding != MegatronOptions::Sharding::automatic || s.megatron.fsdp_double_buffer ||
                       s.megatron.suggested_communication_unit > 0;
  if (of_fsdp && s.data_parallel != DataParallel::megatron_fsdp)
    complaints.add("data_parallel_sharding_strategy, fsdp_double_buffer and suggested_communication_unit_size are Megatron-FSDP's",
                   "set data_parallel megatron-fsdp or leave them out");
  if (s.vp > 1 && s.pp == 2 && !megatron_release(s).overlaps_transfers())
    complaints.add("Megatron before overlap_p2p_comm interleaves more than two pipeline stages alone", "set vp to 1 or pp to more");
  if (s.seq_len % (2 * s.cp) != 0 && s.cp > 1)
    complaints.add("Megatron gives each context-parallel rank two pieces of the sequence, and 2 · cp = " + std::to_string(2 * s.cp) +
                       " does not divide seq_len " + std::to_string(s.seq_len),
                   "choose a cp or a seq_len that fits");
}

FrameworkProfile profile() {
  FrameworkProfile p;
  p.name = "megatron-core";
  p.title = "Megatron-core";
  p.aliases = {"mcore", "megatron"};
  p.source = "megatron-core 0.16.1";
  p.code = ModelCode::megatron_te;
  p.layer_spec = "te";
  p.bf16 = Precision::mixed_bf16;
  p.fp16 = Precision::mixed_fp16;
  p.data_parallel = DataParallel::ddp;
  p.fsdp = DataParallel::megatron_fsdp;
  p.fsdp_reduce = DType::fp32;
  p.optimizer_impl = OptimizerImpl::fused;
  p.attention = AttentionKernel::te;
  p.loss = LossKernel::vocab_parallel;
  p.kinds = {DataParallel::none, DataParallel::ddp, DataParallel::megatron_distopt, DataParallel::megatron_fsdp, DataParallel::fsdp2};
  p.attentions = {AttentionKernel::te,     AttentionKernel::flash,   AttentionKernel::flash3,
                  AttentionKernel::flash4, AttentionKernel::unfused, AttentionKernel::sdpa};
  p.optimizers = {OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::sgdm, OptimizerKind::muon};  // get_megatron_optimizer
  p.losses = {LossKernel::vocab_parallel, LossKernel::fused_vocab_parallel, LossKernel::te};
  p.recomputes = {Recompute::Kind::none, Recompute::Kind::full, Recompute::Kind::selective};
  p.low_precisions = {LowPrecision::none, LowPrecision::fp8, LowPrecision::mxfp8, LowPrecision::nvfp4};
  p.schedules = {"1f1b", "interleaved-1f1b"};
  p.tensor = p.context = p.expert = p.sequence_parallel = p.adapters = p.offload_activations = true;
  p.other_stage_modules = 2;  // account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split
  p.fused_rms_norm = p.fused_gated_mlp = p.fused_qkv = true;
  return p;
}

FrameworkProfile launcher(const char* name, const char* title, const char* source) {
  FrameworkProfile p = profile();
  p.name = name;
  p.title = title;
  p.aliases = {};
  p.source = source;
  p.data_parallel = DataParallel::megatron_distopt;
  p.stages = StageSplit::counted_ends;
  return p;
}

/// Their recipes set tp_comm_overlap wherever tensor-parallel ranks cut the sequence.
FrameworkProfile overlapping(FrameworkProfile p) {
  p.tensor_overlap = true;
  return p;
}

}  // namespace

bool splits_backward(const Strategy& s) { return s.pp > 1 && s.pp_schedule != "1f1b" && s.pp_schedule != "interleaved-1f1b"; }

bool routes_in_turn(const Strategy& s) { return s.framework == "primus" && s.moe.forced_balance; }

Entry megatron_core() { return {profile(), adjust, complete, check}; }

Entry megatron_lm() {
  FrameworkProfile p = launcher("megatron-lm", "Megatron-LM's pretrain_gpt.py", "Megatron-LM, megatron/training/arguments.py");
  p.data_parallel = DataParallel::ddp;
  return {p, adjust, complete, check};
}

Entry megatron_bridge() {
  FrameworkProfile p = overlapping(launcher("megatron-bridge", "Megatron-Bridge", "Megatron-Bridge recipes"));
  p.fp8_scaling = Fp8Scaling::tensorwise;  // bf16_with_fp8_current_scaling_mixed, which its recipes of 8 bits take
  p.loss = LossKernel::te;                 // cross_entropy_fusion_impl of its recipes
  return {p, adjust, complete_recipe, check};
}

Entry nemo() { return {overlapping(launcher("nemo", "NeMo", "NeMo 2 and MLPerf recipes")), adjust, complete_recipe, check}; }

Entry primus() {
  FrameworkProfile p = launcher("primus", "Primus (Megatron backend)", "Primus megatron-parameters.md");
  p.fsdp = DataParallel::fsdp2;  // use_torch_fsdp2; what it runs over torchtitan is torchtitan's
  for (const char* own : {"zb-h1", "zbv", "v-half", "v-min"}) p.schedules.push_back(own);  // patch_primus_pipeline's pp_algorithm
  return {p, adjust, complete_primus, check};
}

}  // namespace plimsoll::framework

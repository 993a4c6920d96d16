#include "framework/idle_options.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace plimsoll::framework {
namespace {

/// What decides which options a run reads.
struct Run {
  const Strategy& s;
  const Model& model;
  Engine engine;
  ModelCode code;

  bool runs(std::initializer_list<ModelCode> codes) const { return std::find(codes.begin(), codes.end(), code) != codes.end(); }
  bool under(std::initializer_list<Engine> engines) const { return std::find(engines.begin(), engines.end(), engine) != engines.end(); }
  bool megatron_core() const { return runs({ModelCode::megatron_local, ModelCode::megatron_te}); }
  bool fsdp() const { return under({Engine::fsdp1, Engine::fsdp2}); }
  bool zero(DataParallel stage) const { return engine == Engine::deepspeed && s.data_parallel == stage; }
  bool experts() const { return model.has_experts(); }
};

/// Keys that act under one condition. A pattern that ends in "*" stands for every key that begins so.
struct Rule {
  std::vector<std::string_view> keys;
  bool (*acts)(const Run&);
  const char* when;  ///< it does not
};

const std::vector<Rule>& rules_of_ranks() {
  static const std::vector<Rule> rules = {
      {{"vp", "pp_schedule", "schedule", "pp_layers"}, [](const Run& r) { return r.s.pp > 1; }, "without a pipeline (pp above 1)"},
      {{"align_param_gather"},
       [](const Run& r) { return r.s.vp > 1 && r.s.data_parallel == DataParallel::megatron_distopt; },
       "without Megatron's distributed optimizer and an interleaved pipeline (vp above 1)"},
      {{"wgrad_deferral_limit"},
       [](const Run& r) { return r.s.megatron.defer_embedding_wgrad_compute.value_or(false); },
       "without defer_embedding_wgrad_compute"},
      {{"dp_shard", "dp_replicate", "fsdp.shard", "fsdp.replicate", "fsdp_degree"},
       [](const Run& r) { return r.engine != Engine::plain && r.engine != Engine::torch_ddp; },
       "where no states are sharded"},
      {{"cp_comm_type"},
       [](const Run& r) { return r.s.cp > 1 && r.megatron_core(); },
       "without Megatron's context parallelism (cp above 1)"},
      {{"etp", "moe_*", "moe.*", "delay_wgrad_compute"}, [](const Run& r) { return r.experts(); }, "by a model without experts"},
      {{"moe_dispatcher", "moe.moe_token_dispatcher_type"},
       [](const Run& r) { return r.megatron_core() || (r.code == ModelCode::torchtitan && r.s.ep > 1); },
       "outside of Megatron-core, or of TorchTitan with ep above 1"},
      {{"moe_grouped_gemm", "moe_permute_fusion", "moe_fused_mlp", "moe.moe_expert_capacity_factor", "moe.moe_pad_expert_input_to_capacity",
        "moe.moe_router_load_balancing_type", "moe.moe_aux_loss_coeff", "moe_a2a_overlap", "delay_wgrad_compute"},
       [](const Run& r) { return r.megatron_core(); },
       "outside of Megatron-core"},
      {{"moe.moe_pad_expert_input_to_capacity"},
       [](const Run& r) { return r.s.moe.capacity_factor.has_value(); },
       "without moe.moe_expert_capacity_factor"},
      {{"liger_rope", "liger_rms_norm", "liger_glu"}, [](const Run& r) { return r.s.liger_kernel; }, "without liger_kernel"},
      {{"mtp_num_layers", "mtp_use_repeated_layer", "module_precision"},
       [](const Run& r) { return r.megatron_core(); },
       "outside of Megatron-core"},
      {{"mtp_use_repeated_layer"}, [](const Run& r) { return r.s.megatron.mtp_num_layers > 0; }, "without mtp_num_layers"},
      {{"moe_imbalance"}, [](const Run& r) { return r.s.ep > 1; }, "with all experts on each rank (ep is 1)"},
      {{"packed", "average_tokens_per_sample"},
       [](const Run& r) { return r.code == ModelCode::torchtune; },
       "outside of torchtune: every position of a sequence is taken for a token"},
  };
  return rules;
}

const std::vector<Rule>& rules_of_engines() {
  static const std::vector<Rule> rules = {
      {{"ddp.bucket_cap_mb", "ddp.gradient_as_bucket_view", "ddp.static_graph", "ddp.find_unused_parameters"},
       [](const Run& r) { return r.engine == Engine::torch_ddp; },
       "outside of torch's DDP"},
      {{"fsdp.units", "wrap", "fsdp.root_unit"},
       [](const Run& r) {
         return r.fsdp() && r.runs({ModelCode::transformers, ModelCode::diffusers});
       },
       "outside of FSDP over transformers or diffusers: other frameworks wrap their layers themselves"},
      {{"fsdp.reshard_after_forward", "reshard_after_forward"},
       [](const Run& r) { return r.engine == Engine::fsdp2; },
       "outside of FSDP2"},
      {{"fsdp.strategy", "fsdp.mixed_precision"}, [](const Run& r) { return r.fsdp(); }, "outside of torch's FSDP"},
      {{"fsdp.mixed_precision"}, [](const Run& r) { return r.code != ModelCode::torchtune; }, "by torchtune"},
      {{"fsdp.use_orig_params", "fsdp.forward_prefetch", "fsdp.backward_prefetch", "fsdp.min_num_params"},
       [](const Run& r) {
         return r.engine == Engine::fsdp1 && r.runs({ModelCode::transformers, ModelCode::diffusers, ModelCode::mpt});
       },
       "outside of FSDP1 over transformers, diffusers or llm-foundry's models"},
      {{"fsdp.limit_all_gathers", "limit_all_gathers"},
       [](const Run&) { return false; },
       "whatever it says: the host is taken to wait for gathers as FSDP1's rate limiter does"},
      {{"fsdp.no_sync", "ddp.no_sync"}, [](const Run& r) { return r.s.grad_accum > 1; }, "without gradient accumulation"},
      {{"fsdp.no_sync", "ddp.no_sync"},
       [](const Run& r) { return r.fsdp() || r.engine == Engine::torch_ddp; },
       "outside of torch's DDP and FSDP"},
      {{"fsdp.reduce_dtype", "reduce_dtype", "composer_mixed_precision"},
       [](const Run& r) { return (r.fsdp() && r.code != ModelCode::torchtune) || r.engine == Engine::nanotron; },
       "outside of nanotron and of torch's FSDP by others than torchtune"},
      {{"overlap_grad_reduce", "overlap_param_gather", "align_param_gather", "defer_embedding_wgrad_compute", "wgrad_deferral_limit",
        "ddp_bucket_size", "pad_buckets_for_high_nccl_busbw", "gradient_accumulation_fusion", "masked_softmax_fusion", "rope_fusion",
        "layer_spec", "precision_aware_optimizer", "make_vocab_size_divisible_by", "data_parallel_sharding_strategy", "fsdp_double_buffer",
        "suggested_communication_unit_size", "recompute_method", "recompute_num_layers", "recompute_modules"},
       [](const Run& r) { return r.megatron_core() || r.code == ModelCode::megatron_legacy; },
       "outside of Megatron"},
      {{"bias_swiglu_fusion"}, [](const Run& r) { return r.megatron_core(); }, "outside of Megatron-core"},
      {{"check_for_nan_in_grad"},
       [](const Run& r) { return r.engine == Engine::megatron && r.megatron_core(); },
       "outside of Megatron-core's DistributedDataParallel"},
      {{"zero_init", "deepspeed.zero_optimization.contiguous_gradients", "deepspeed.zero_optimization.overlap_comm",
        "deepspeed.zero_optimization.reduce_*", "deepspeed.zero_optimization.sub_group_size", "deepspeed.zero_optimization.stage3_*",
        "deepspeed.zero_optimization.zero_*", "deepspeed.zero_optimization.mics_shard_size",
        "deepspeed.zero_optimization.round_robin_gradients", "deepspeed.data_types.*", "deepspeed.communication_data_type",
        "deepspeed.prescale_gradients", "deepspeed.gradient_predivide_factor", "deepspeed.bf16.bf16_*",
        "deepspeed.fp16.fp16_master_weights_and_grads"},
       [](const Run& r) { return r.engine == Engine::deepspeed; },
       "outside of DeepSpeed"},
      {{"zero_init", "reference_prefetch_bucket_size", "reference_param_persistence_threshold", "deepspeed.zero_optimization.stage3*",
        "deepspeed.zero_optimization.sub_group_size", "deepspeed.zero_optimization.zero_quantized_weights"},
       [](const Run& r) { return r.zero(DataParallel::zero3); },
       "outside of ZeRO-3"},
      {{"deepspeed.zero_optimization.round_robin_gradients"},
       [](const Run& r) { return r.zero(DataParallel::zero1) || r.zero(DataParallel::zero2); },
       "outside of ZeRO-1 and ZeRO-2"},
      {{"deepspeed.aio.block_size"},
       [](const Run& r) { return r.s.deepspeed.offload_optimizer.nvme || r.s.deepspeed.offload_param.nvme; },
       "where nothing lies on NVMe"},
      {{"deepspeed.zero_optimization.allgather_bucket_size"},
       [](const Run&) { return false; },
       "whatever it says: updated weights are taken to be gathered at once"},
      {{"deepspeed.zero_optimization.offload_optimizer.pin_memory", "deepspeed.zero_optimization.offload_optimizer.buffer_count",
        "deepspeed.zero_optimization.offload_optimizer.pipeline_*", "deepspeed.zero_optimization.offload_optimizer.fast_init",
        "deepspeed.zero_optimization.offload_optimizer.ratio"},
       [](const Run& r) { return r.s.offload.optimizer; },
       "where the optimizer stays on the device"},
      {{"deepspeed.zero_optimization.offload_param.pin_memory", "deepspeed.zero_optimization.offload_param.buffer_*",
        "deepspeed.zero_optimization.offload_param.max_in_cpu"},
       [](const Run& r) { return r.s.offload.params; },
       "where parameters stay on the device"},
  };
  return rules;
}

const std::vector<Rule>& rules_of_kernels() {
  static const std::vector<Rule> rules = {
      {{"fp8_recipe", "bf16_tail_layers", "module_precision"},
       [](const Run& r) { return r.s.low_precision != LowPrecision::none; },
       "without products of 8 or 4 bits"},
      {{"fp8_params", "fp8_activations", "fp8_attention"}, [](const Run& r) { return r.megatron_core(); }, "outside of Megatron-core"},
      {{"grad_dtype"},
       [](const Run& r) { return r.megatron_core() || r.runs({ModelCode::megatron_legacy, ModelCode::nanotron}); },
       "outside of Megatron and nanotron"},
      {{"master_dtype"},
       [](const Run& r) {  // none of 16-bit weights: neither half is on in DeepSpeed's JSON, and ZeRO-1 and 2 look for no overflow
         const bool decides = r.engine != Engine::deepspeed || r.zero(DataParallel::zero1) || r.zero(DataParallel::zero2);
         return decides && r.code != ModelCode::torchtune;
       },
       "by DeepSpeed, whose optimizer keeps fp32 weights, and torchtune"},
      {{"lora.adapter_dtype"},
       [](const Run& r) {
         return !r.runs({ModelCode::transformers}) || r.engine == Engine::deepspeed || r.s.base_weights != BaseWeights::as_trained;
       },
       "by transformers over weights that are not quantised, whose adapters PEFT keeps in fp32 (autocast_adapter_dtype)"},
      {{"trained_modules"}, [](const Run& r) { return r.code == ModelCode::transformers; }, "outside of transformers"},
      {{"trainable_params"}, [](const Run& r) { return r.s.peft.has_value(); }, "without a PEFT task that leaves a number open"},
      {{"bnb_4bit_quant_storage"}, [](const Run& r) { return r.s.base_weights != BaseWeights::as_trained; }, "without 4-bit weights"},
      {{"qat.group_size"}, [](const Run& r) { return r.code == ModelCode::torchtune; }, "outside of torchtune"},
      {{"moe_fused_mlp"}, [](const Run& r) { return r.s.low_precision == LowPrecision::mxfp8; }, "without mxfp8"},
      {{"allocator.garbage_collection_threshold"},
       [](const Run& r) { return r.s.allocator.per_process_memory_fraction.has_value(); },
       "without torch.cuda.set_per_process_memory_fraction, which no option says"},
      {{"state_dtype"},
       [](const Run& r) { return r.runs({ModelCode::torchtitan, ModelCode::torchtune}) || r.s.megatron.precision_aware_optimizer; },
       "outside of TorchTitan, torchtune and Megatron's precision_aware_optimizer"},
      {{"optimizer_in_bwd"}, [](const Run& r) { return r.code == ModelCode::torchtune; }, "outside of torchtune"},
      {{"offload_layers"}, [](const Run& r) { return r.s.offload.activations; }, "where no activations leave the device"},
      {{"recompute_reentrant"},
       [](const Run& r) { return r.s.recompute.kind == Recompute::Kind::full && r.runs({ModelCode::transformers, ModelCode::mpt}); },
       "without full recomputation by transformers or llm-foundry"},
      {{"cudnn_attention"},
       [](const Run& r) {
         return r.s.attention == AttentionKernel::sdpa && r.engine != Engine::deepspeed &&
                r.runs({ModelCode::transformers, ModelCode::diffusers});
       },
       "outside of transformers and diffusers with attention sdpa"},
      {{"cudnn"},
       [](const Run& r) { return r.s.task == Strategy::Task::image || r.s.task == Strategy::Task::diffusion; },
       "outside of image classification and diffusion: nothing else convolves images"},
      {{"masked_softmax_fusion"},
       [](const Run& r) { return r.s.attention == AttentionKernel::unfused || r.s.attention == AttentionKernel::eager; },
       "by fused attention"},
      {{"tf32"},
       [](const Run& r) { return r.s.compute_dtype == DType::fp32 || r.experts() || (r.s.lora && r.s.lora->adapter_dtype == DType::fp32); },
       "without products in fp32"},
      {{"loss_parallel"}, [](const Run&) { return false; }, "whatever it says: TorchTitan's logits are taken to be cut over tp"},
      {{"compile"}, [](const Run& r) { return !r.megatron_core(); }, "by Megatron, whose small functions are compiled anyway"},
      {{"cuda_graph"}, [](const Run& r) { return r.code == ModelCode::megatron_te; }, "outside of Megatron-core with Transformer Engine"},
      {{"async_tp", "tp_async"},
       [](const Run& r) { return r.s.tp > 1 && r.s.sequence_parallel.value_or(false); },
       "without tensor and sequence parallelism"},
      {{"async_tp", "tp_async"},
       [](const Run& r) {
         return r.code == ModelCode::megatron_te || (r.code == ModelCode::torchtitan && r.s.compile == Strategy::Compile::blocks);
       },
       "outside of Transformer Engine and of TorchTitan's compiled blocks"},
      {{"comm_overlap"},
       [](const Run& r) { return (r.megatron_core() && r.s.framework != "megatron-core" && r.s.framework != "megatron-lm"); },
       "outside of Megatron's launchers: collectives go as the framework issues them"},
      {{"spmd_backend", "fused_qkv", "rope_positions_given", "compiled_loss"},
       [](const Run& r) { return r.code == ModelCode::torchtitan; },
       "outside of TorchTitan"},
      {{"transformers", "releases.transformers"},
       [](const Run& r) {
         return r.code == ModelCode::transformers ||
                (r.code == ModelCode::mpt && r.model.model_type != "mpt" && r.model.model_type != "gpt2");
       },
       "outside of transformers' modules"},
      {{"torch", "releases.torch"}, [](const Run& r) { return r.code != ModelCode::maxtext; }, "by JAX"},
      {{"lora.peft"}, [](const Run&) { return false; }, "whatever it says: no rule depends on PEFT's release"},
      {{"local_batch", "stages_per_rank", "moe.moe_router_topk", "moe_forced_balance", "rope_cache", "autograd_threads", "cp_comm",
        "optimizer_class", "lora.use_rslora", "stage_layers", "has_embedding", "has_head"},
       [](const Run&) { return false; },
       "whatever it says: it changes neither bytes nor time, or another option says it"},
  };
  return rules;
}

bool stands_for(std::string_view pattern, std::string_view key) {
  if (pattern.empty() || pattern.back() != '*') return pattern == key;
  pattern.remove_suffix(1);
  return key.substr(0, pattern.size()) == pattern;
}

bool names(const Rule& rule, std::string_view key) {
  return std::any_of(rule.keys.begin(), rule.keys.end(), [&](std::string_view pattern) { return stands_for(pattern, key); });
}

/// Whether a key names the release of a package on which no rule depends.
bool names_idle_release(std::string_view key) {
  constexpr std::string_view kReleases = "releases.";
  if (key.substr(0, kReleases.size()) != kReleases) return false;
  key.remove_prefix(kReleases.size());
  return std::none_of(package_facts().begin(), package_facts().end(), [&](const PackageFacts& facts) {
    return !facts.rules.empty() && std::find(facts.names.begin(), facts.names.end(), key) != facts.names.end();
  });
}

/// When the key does not act, if that is so of this run; else nullptr.
const char* lacking(const Run& run, std::string_view key) {
  if (names_idle_release(key)) return "whatever it says: no rule depends on that package's release";
  for (const auto* rules : {&rules_of_ranks(), &rules_of_engines(), &rules_of_kernels()})
    for (const Rule& rule : *rules)
      if (names(rule, key) && !rule.acts(run)) return rule.when;
  return nullptr;
}

}  // namespace

std::vector<IdleOption> idle_options(const Strategy& resolved, const Model& model) {
  const Run run{resolved, model, engine_of(resolved), profile_of(resolved).code};
  std::vector<std::string> given = resolved.file_keys;
  for (const auto& [spelled, value] : resolved.options)
    if (std::find(given.begin(), given.end(), spelled) == given.end()) given.push_back(spelled);
  std::vector<IdleOption> idle;
  for (const std::string& spelled : given) {
    std::string key = spelled;
    std::replace(key.begin(), key.end(), '-', '_');
    if (const char* when = lacking(run, key)) idle.push_back({spelled, when});
  }
  return idle;
}

}  // namespace plimsoll::framework

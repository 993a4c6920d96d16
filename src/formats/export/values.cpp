#include "formats/export/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <type_traits>
#include <utility>

#include "plimsoll/formats.hpp"
#include "strategy/names.hpp"

namespace plimsoll::formats {
namespace {

using Value = std::optional<std::string>;

Value number(std::int64_t value) { return value == 0 ? Value() : Value(std::to_string(value)); }
Value flag(bool value) { return value ? "true" : "false"; }
Value flag(const std::optional<bool>& value) { return value ? flag(*value) : Value(); }
/// What verl's workers have, where they run.
template <auto Member>
Value of_workers(const Strategy& s) {
  if (!s.post_training || !s.post_training->by_verl()) return {};
  const auto value = s.post_training->workers.*Member;
  if constexpr (std::is_same_v<decltype(value), const bool>)
    return flag(value);
  else
    return number(value);
}
Value text(std::string_view value) { return value.empty() ? Value() : Value(std::string(value)); }
Value type(const std::optional<DType>& value) { return value ? Value(std::string(name_of(*value))) : Value(); }
Value list(const std::vector<std::string>& values) {
  std::string all;
  for (const std::string& value : values) all += (all.empty() ? "" : ",") + value;
  return text(all);
}

bool is_fsdp(const Strategy& s) { return plimsoll::is_fsdp(s.data_parallel); }
bool first_fsdp(const Strategy& s) { return s.data_parallel == DataParallel::fsdp1; }
bool is_zero(const Strategy& s) {
  return s.data_parallel == DataParallel::zero0 || s.data_parallel == DataParallel::zero1 || s.data_parallel == DataParallel::zero2 ||
         s.data_parallel == DataParallel::zero3;
}
bool is_megatron(const Strategy& s) { return !s.megatron.layer_spec.empty(); }

Value zero_stage(const Strategy& s) {
  if (!is_zero(s)) return {};
  return std::to_string(static_cast<int>(s.data_parallel) - static_cast<int>(DataParallel::zero0));
}

Value sharding(const Strategy& s) {
  using Sharding = FsdpOptions::Sharding;
  if (!first_fsdp(s)) return {};
  switch (s.fsdp.sharding) {
    case Sharding::full_shard:
      return "FULL_SHARD";
    case Sharding::shard_grad_op:
      return "SHARD_GRAD_OP";
    case Sharding::no_shard:
      return "NO_SHARD";
    case Sharding::hybrid_shard:
      return "HYBRID_SHARD";
    case Sharding::hybrid_shard_zero2:
      return "HYBRID_SHARD_ZERO2";
    default:
      return {};
  }
}

Value backward_prefetch(const Strategy& s) {
  using Prefetch = FsdpOptions::Prefetch;
  if (!first_fsdp(s)) return {};
  switch (s.fsdp.backward_prefetch) {
    case Prefetch::pre:
      return "BACKWARD_PRE";
    case Prefetch::post:
      return "BACKWARD_POST";
    case Prefetch::none:
      return "NO_PREFETCH";
    default:
      return {};
  }
}

Value reshard(const Strategy& s) {
  using Reshard = FsdpOptions::Reshard;
  if (s.data_parallel != DataParallel::fsdp2) return {};
  switch (s.fsdp.reshard) {
    case Reshard::always:
      return "always";
    case Reshard::never:
      return "never";
    case Reshard::number:
      return std::to_string(s.fsdp.reshard_to);
    default:
      return "default";
  }
}

Value precision(const Strategy& s) {
  if (s.low_precision != LowPrecision::none) return std::string(name_of(s.low_precision));
  return std::string(name_of(s.precision));
}

Value recompute(const Strategy& s) {
  if (s.recompute.kind == Recompute::Kind::alternate) return fmt::format("every-{}-layers", s.recompute.every);
  return std::string(strategy::name_in(strategy::recompute_names(), s.recompute.kind));
}

Value recompute_method(const Strategy& s) {
  if (s.recompute.kind != Recompute::Kind::full || s.recompute.method == Recompute::Method::none) return {};
  return s.recompute.method == Recompute::Method::uniform ? "uniform" : "block";
}

Value offload(const Strategy& s) {
  std::string all;
  const std::pair<bool, const char*> parts[] = {
      {s.offload.params, "params"}, {s.offload.grads, "grads"}, {s.offload.optimizer, "optimizer"}, {s.offload.activations, "activations"}};
  for (const auto& [leaves, name] : parts)
    if (leaves) all += (all.empty() ? "" : "+") + std::string(name);
  return all.empty() ? "none" : all;
}

Value device_of(bool offloaded, const DeepSpeedOptions::Offload& offload, const Strategy& s) {
  if (!is_zero(s)) return {};
  return !offloaded ? "none" : offload.nvme ? "nvme" : "cpu";
}

Value compile(const Strategy& s) {
  using Compile = Strategy::Compile;
  if (s.compile == Compile::blocks) return "blocks";
  if (s.compile == Compile::model) return "model";
  return s.compile == Compile::jit_fusers ? "jit-fusers" : "false";
}

Value layers(const Strategy& s) {
  std::string all;
  for (const int stage : s.pp_layers) all += (all.empty() ? "[" : ",") + std::to_string(stage);
  return all.empty() ? Value() : Value(all + "]");
}

Value task(const Strategy& s) {
  if (s.post_training) return std::string(strategy::name_in(strategy::post_training_names(), s.post_training->kind));
  if (s.peft) return std::string(strategy::name_in(strategy::peft_method_names(), s.peft->method));
  if (s.lora) return s.base_weights == BaseWeights::nf4 ? "qlora" : "lora";
  return std::string(strategy::name_in(strategy::task_names(), s.task));
}

struct Getter {
  std::string_view key;
  Value (*get)(const Strategy&);
};

const Getter kGetters[] = {
    {"framework", [](const Strategy& s) { return text(s.framework); }},
    {"task", task},
    {"gpus", [](const Strategy& s) { return number(s.gpus); }},
    {"tp", [](const Strategy& s) { return number(s.tp); }},
    {"pp", [](const Strategy& s) { return number(s.pp); }},
    {"vp", [](const Strategy& s) { return number(s.vp); }},
    {"cp", [](const Strategy& s) { return number(s.cp); }},
    {"ep", [](const Strategy& s) { return number(s.ep); }},
    {"etp", [](const Strategy& s) { return s.ep > 1 ? number(s.etp) : Value(); }},
    {"dp", [](const Strategy& s) { return number(s.dp); }},
    {"dp_shard", [](const Strategy& s) { return is_fsdp(s) ? number(s.dp_shard) : Value(); }},
    {"dp_replicate", [](const Strategy& s) { return is_fsdp(s) ? number(s.dp_replicate) : Value(); }},
    {"sequence_parallel", [](const Strategy& s) { return s.tp > 1 ? flag(s.sequence_parallel.value_or(false)) : Value(); }},
    {"pp_schedule", [](const Strategy& s) { return text(s.pp_schedule); }},
    {"pp_layers", layers},
    {"micro_batch", [](const Strategy& s) { return number(s.micro_batch); }},
    {"global_batch", [](const Strategy& s) { return number(s.global_batch); }},
    {"grad_accum", [](const Strategy& s) { return number(s.grad_accum); }},
    {"micro_batches_per_step", [](const Strategy& s) { return number(s.micro_batches); }},
    {"seq_len", [](const Strategy& s) { return number(s.seq_len); }},
    {"packed", [](const Strategy& s) { return flag(s.packed); }},
    {"data_parallel", [](const Strategy& s) { return text(name_of(s.data_parallel)); }},
    {"zero_stage", zero_stage},
    {"fsdp.units", [](const Strategy& s) { return is_fsdp(s) ? list(s.fsdp.units) : Value(); }},
    {"fsdp.reshard_after_forward", reshard},
    {"fsdp.strategy", sharding},
    {"fsdp.limit_all_gathers", [](const Strategy& s) { return first_fsdp(s) ? flag(s.fsdp.limit_all_gathers) : Value(); }},
    {"fsdp.use_orig_params", [](const Strategy& s) { return first_fsdp(s) ? flag(s.fsdp.use_orig_params) : Value(); }},
    {"fsdp.backward_prefetch", backward_prefetch},
    {"fsdp.min_num_params",
     [](const Strategy& s) { return is_fsdp(s) && s.fsdp.min_num_params > 0 ? number(s.fsdp.min_num_params) : Value(); }},
    {"fsdp.forward_prefetch", [](const Strategy& s) { return first_fsdp(s) ? flag(s.fsdp.forward_prefetch) : Value(); }},
    {"ddp.no_sync", [](const Strategy& s) { return s.grad_accum > 1 && !is_zero(s) ? flag(s.no_sync) : Value(); }},
    {"ddp.bucket_cap_mb",
     [](const Strategy& s) {
       return s.data_parallel == DataParallel::ddp && s.ddp.bucket_cap_mb ? Value(fmt::format("{}", *s.ddp.bucket_cap_mb)) : Value();
     }},
    {"ddp.static_graph", [](const Strategy& s) { return s.data_parallel == DataParallel::ddp ? flag(s.ddp.static_graph) : Value(); }},
    {"ddp.find_unused_parameters",
     [](const Strategy& s) { return s.data_parallel == DataParallel::ddp ? flag(s.ddp.find_unused_parameters) : Value(); }},
    {"deepspeed.zero_optimization.contiguous_gradients",
     [](const Strategy& s) { return is_zero(s) ? flag(s.deepspeed.contiguous_gradients) : Value(); }},
    {"deepspeed.zero_optimization.overlap_comm", [](const Strategy& s) { return is_zero(s) ? flag(s.deepspeed.overlap_comm) : Value(); }},
    {"deepspeed.zero_optimization.reduce_scatter",
     [](const Strategy& s) { return is_zero(s) ? flag(s.deepspeed.reduce_scatter) : Value(); }},
    {"deepspeed.zero_optimization.reduce_bucket_size",
     [](const Strategy& s) { return is_zero(s) ? number(s.deepspeed.reduce_bucket_size) : Value(); }},
    {"deepspeed.zero_optimization.allgather_bucket_size",
     [](const Strategy& s) { return is_zero(s) ? number(s.deepspeed.allgather_bucket_size) : Value(); }},
    {"deepspeed.zero_optimization.sub_group_size",
     [](const Strategy& s) { return zero_stage(s) == "3" ? number(s.deepspeed.sub_group_size) : Value(); }},
    {"deepspeed.zero_optimization.stage3_prefetch_bucket_size",
     [](const Strategy& s) { return zero_stage(s) == "3" ? number(s.deepspeed.stage3_prefetch_bucket_size) : Value(); }},
    {"deepspeed.zero_optimization.stage3_param_persistence_threshold",
     [](const Strategy& s) {
       return zero_stage(s) == "3" ? Value(std::to_string(s.deepspeed.stage3_param_persistence_threshold)) : Value();
     }},
    {"deepspeed.zero_optimization.stage3_max_live_parameters",
     [](const Strategy& s) { return zero_stage(s) == "3" ? number(s.deepspeed.stage3_max_live_parameters) : Value(); }},
    {"deepspeed.zero_optimization.stage3_max_reuse_distance",
     [](const Strategy& s) { return zero_stage(s) == "3" ? number(s.deepspeed.stage3_max_reuse_distance) : Value(); }},
    {"deepspeed.zero_optimization.zero_hpz_partition_size",
     [](const Strategy& s) { return zero_stage(s) == "3" ? number(s.deepspeed.zero_hpz_partition_size) : Value(); }},
    {"deepspeed.zero_optimization.round_robin_gradients",
     [](const Strategy& s) { return is_zero(s) ? flag(s.deepspeed.round_robin_gradients) : Value(); }},
    {"deepspeed.zero_optimization.offload_optimizer.device",
     [](const Strategy& s) { return device_of(s.offload.optimizer, s.deepspeed.offload_optimizer, s); }},
    {"deepspeed.zero_optimization.offload_optimizer.pin_memory",
     [](const Strategy& s) { return is_zero(s) && s.offload.optimizer ? flag(s.deepspeed.offload_optimizer.pin_memory) : Value(); }},
    {"deepspeed.zero_optimization.offload_param.device",
     [](const Strategy& s) { return zero_stage(s) == "3" ? device_of(s.offload.params, s.deepspeed.offload_param, s) : Value(); }},
    {"deepspeed.zero_optimization.offload_param.pin_memory",
     [](const Strategy& s) { return is_zero(s) && s.offload.params ? flag(s.deepspeed.offload_param.pin_memory) : Value(); }},
    {"deepspeed.data_types.grad_accum_dtype", [](const Strategy& s) { return is_zero(s) ? type(s.deepspeed.grad_accum_dtype) : Value(); }},
    {"overlap_grad_reduce", [](const Strategy& s) { return is_megatron(s) ? flag(s.megatron.overlap_grad_reduce) : Value(); }},
    {"overlap_param_gather", [](const Strategy& s) { return is_megatron(s) ? flag(s.megatron.overlap_param_gather) : Value(); }},
    {"align_param_gather", [](const Strategy& s) { return is_megatron(s) ? flag(s.megatron.align_param_gather) : Value(); }},
    {"defer_embedding_wgrad_compute",
     [](const Strategy& s) { return is_megatron(s) ? flag(s.megatron.defer_embedding_wgrad_compute) : Value(); }},
    {"wgrad_deferral_limit", [](const Strategy& s) { return is_megatron(s) ? number(s.megatron.wgrad_deferral_limit) : Value(); }},
    {"ddp_bucket_size", [](const Strategy& s) { return is_megatron(s) ? number(s.megatron.ddp_bucket_size) : Value(); }},
    {"gradient_accumulation_fusion",
     [](const Strategy& s) { return is_megatron(s) ? flag(s.megatron.gradient_accumulation_fusion) : Value(); }},
    {"masked_softmax_fusion", [](const Strategy& s) { return is_megatron(s) ? flag(s.megatron.masked_softmax_fusion) : Value(); }},
    {"rope_fusion", [](const Strategy& s) { return is_megatron(s) ? flag(s.megatron.rope_fusion) : Value(); }},
    {"bias_swiglu_fusion",
     [](const Strategy& s) { return is_megatron(s) && s.megatron.bias_swiglu_fusion == false ? flag(false) : Value(); }},
    {"layer_spec", [](const Strategy& s) { return text(s.megatron.layer_spec); }},
    {"cp_comm_type", [](const Strategy& s) { return s.cp > 1 ? text(s.megatron.cp_comm_type) : Value(); }},
    {"make_vocab_size_divisible_by",
     [](const Strategy& s) { return is_megatron(s) ? number(s.megatron.make_vocab_size_divisible_by) : Value(); }},
    {"precision_aware_optimizer", [](const Strategy& s) { return is_megatron(s) ? flag(s.megatron.precision_aware_optimizer) : Value(); }},
    {"data_parallel_sharding_strategy",
     [](const Strategy& s) {
       return s.data_parallel == DataParallel::megatron_fsdp
                  ? text(strategy::name_in(strategy::megatron_sharding_names(), s.megatron.sharding))
                  : Value();
     }},
    {"precision", precision},
    {"param_dtype", [](const Strategy& s) { return type(s.param_dtype); }},
    {"grad_dtype", [](const Strategy& s) { return type(s.grad_dtype); }},
    {"reduce_dtype", [](const Strategy& s) { return type(s.reduce_dtype); }},
    {"state_dtype", [](const Strategy& s) { return type(s.state_dtype); }},
    {"fp8_recipe", [](const Strategy& s) { return s.low_precision == LowPrecision::fp8 ? text(name_of(s.fp8_scaling)) : Value(); }},
    {"fp8_params", [](const Strategy& s) { return s.low_precision == LowPrecision::fp8 ? flag(s.fp8_params) : Value(); }},
    {"optimizer", [](const Strategy& s) { return text(name_of(s.optimizer)); }},
    {"optimizer_impl", [](const Strategy& s) { return text(name_of(s.optimizer_impl)); }},
    {"optimizer_in_bwd", [](const Strategy& s) { return flag(s.optimizer_in_backward); }},
    {"trainer_optimizer", [](const Strategy& s) { return flag(s.trainer_optimizer); }},
    {"clip_grad_norm", [](const Strategy& s) { return flag(s.clip_grad_norm); }},
    {"lora.r", [](const Strategy& s) { return s.lora ? number(s.lora->r) : Value(); }},
    {"lora.alpha",
     [](const Strategy& s) { return s.lora ? Value(fmt::format("{}", s.lora->alpha > 0 ? s.lora->alpha : 2.0 * s.lora->r)) : Value(); }},
    {"lora.dropout", [](const Strategy& s) { return s.lora ? Value(fmt::format("{}", s.lora->dropout)) : Value(); }},
    {"lora.target_modules", [](const Strategy& s) { return s.lora ? list(s.lora->targets) : Value(); }},
    {"lora.modules_to_save", [](const Strategy& s) { return s.lora ? list(s.lora->modules_to_save) : Value(); }},
    {"lora.use_dora", [](const Strategy& s) { return s.lora ? flag(s.lora->dora) : Value(); }},
    {"lora.mlp_kernel", [](const Strategy& s) { return s.lora && s.lora->mlp_kernel ? flag(true) : Value(); }},
    {"lora.qkv_kernel", [](const Strategy& s) { return s.lora && s.lora->qkv_kernel ? flag(true) : Value(); }},
    {"lora.o_kernel", [](const Strategy& s) { return s.lora && s.lora->o_kernel ? flag(true) : Value(); }},
    {"base_weights",
     [](const Strategy& s) { return Value(std::string(strategy::name_in(strategy::base_weights_names(), s.base_weights))); }},
    {"qat.group_size", [](const Strategy& s) { return s.qat_group_size > 0 ? number(s.qat_group_size) : Value(); }},
    {"recompute", recompute},
    {"recompute_modules",
     [](const Strategy& s) { return s.recompute.kind == Recompute::Kind::selective ? list(s.recompute.modules) : Value(); }},
    {"recompute_method", recompute_method},
    {"recompute_num_layers", [](const Strategy& s) { return recompute_method(s) ? number(s.recompute.layers) : Value(); }},
    {"recompute_reentrant",
     [](const Strategy& s) {
       return s.recompute.kind == Recompute::Kind::full && !is_megatron(s) ? flag(s.recompute.reentrant) : Value();
     }},
    {"attention", [](const Strategy& s) { return text(name_of(s.attention)); }},
    {"loss", [](const Strategy& s) { return text(name_of(s.loss)); }},
    {"loss_chunks", [](const Strategy& s) { return s.loss == LossKernel::chunked ? number(s.loss_chunks) : Value(); }},
    {"loss_parallel", [](const Strategy& s) { return s.tp > 1 && !is_megatron(s) ? flag(s.loss_parallel) : Value(); }},
    {"tf32", [](const Strategy& s) { return flag(s.tf32); }},
    {"liger_kernel", [](const Strategy& s) { return flag(s.liger_kernel); }},
    {"liger_rope", [](const Strategy& s) { return s.liger_kernel ? flag(s.liger_modules.rope) : Value(); }},
    {"liger_rms_norm", [](const Strategy& s) { return s.liger_kernel ? flag(s.liger_modules.rms_norm) : Value(); }},
    {"liger_glu", [](const Strategy& s) { return s.liger_kernel ? flag(s.liger_modules.glu) : Value(); }},
    {"compile", compile},
    {"async_tp", [](const Strategy& s) { return s.tp > 1 ? flag(s.async_tp) : Value(); }},
    {"moe_a2a_overlap", [](const Strategy& s) { return s.ep > 1 ? flag(s.moe.a2a_overlap) : Value(); }},
    {"delay_wgrad_compute", [](const Strategy& s) { return s.moe.delay_wgrad ? flag(true) : Value(); }},
    {"moe_grouped_gemm", [](const Strategy& s) { return s.moe.grouped_gemm ? Value() : flag(false); }},
    {"moe_permute_fusion",
     [](const Strategy& s) { return is_megatron(s) && s.moe.permute_fusion == false && s.moe.grouped_gemm ? flag(false) : Value(); }},
    {"moe_fused_mlp", [](const Strategy& s) { return s.moe.fused_mlp ? flag(true) : Value(); }},
    {"mtp_num_layers", [](const Strategy& s) { return number(s.megatron.mtp_num_layers); }},
    {"mtp_use_repeated_layer", [](const Strategy& s) { return s.megatron.mtp_use_repeated_layer ? flag(true) : Value(); }},
    {"module_precision", [](const Strategy& s) { return list(s.megatron.module_precision); }},
    {"offload", offload},
    {"moe_dispatcher", [](const Strategy& s) { return s.ep > 1 ? text(s.moe.dispatcher) : Value(); }},
    {"spmd_backend", [](const Strategy& s) { return s.framework == "torchtitan" ? text(s.titan.spmd_backend) : Value(); }},
    {"allocator.expandable_segments", [](const Strategy& s) { return flag(s.allocator.expandable_segments); }},
};

// ---- keys that no writer needs -----------------------------------------------------------------------------------------

Value amount(double value) { return fmt::format("{}", value); }
Value rank(const std::optional<int>& value) { return value ? Value(std::to_string(*value)) : Value(); }

Value stage_layers(const Strategy& s) {
  std::string all;
  for (const auto& [first, last] : s.stage_layers) all += fmt::format("{}[{},{}]", all.empty() ? "[" : ",", first, last);
  return all.empty() ? Value() : Value(all + "]");
}

Value activation_offload(const Strategy& s) {
  return s.offload.activations_by == Offload::By::automatic ? Value() : Value(std::string(strategy::name_in(strategy::offload_by_names(), s.offload.activations_by)));
}

Value neighbour_place(NeighbourPlaces::Place place) {
  return place == NeighbourPlaces::Place::automatic ? Value() : Value(std::string(strategy::name_in(strategy::neighbour_place_names(), place)));
}

bool is_mixture(const Strategy& s) { return !s.moe.dispatcher.empty(); }

template <Package package>
Value release_of(const Strategy& s) {
  const Releases::Entry* entry = s.releases.find(package);
  return entry ? Value(entry->release.text()) : Value();
}

const Getter kReported[] = {
    {"torch", release_of<Package::torch>},
    {"transformers", release_of<Package::transformers>},
    {"lora.peft", release_of<Package::peft>},
    {"fsdp_degree", [](const Strategy& s) { return is_fsdp(s) ? number(s.fsdp_degree) : Value(); }},
    {"stage_layers", stage_layers},
    {"reference_prefetch_bucket_size",
     [](const Strategy& s) { return s.deepspeed.reference_prefetch_bucket_size ? number(*s.deepspeed.reference_prefetch_bucket_size) : Value(); }},
    {"reference_param_persistence_threshold",
     [](const Strategy& s) { return s.deepspeed.reference_param_persistence_threshold ? number(*s.deepspeed.reference_param_persistence_threshold) : Value(); }},
    {"has_embedding", [](const Strategy& s) { return flag(s.stage_has_embedding); }},
    {"has_head", [](const Strategy& s) { return flag(s.stage_has_head); }},
    {"rank", [](const Strategy& s) { return rank(s.rank); }},
    {"pp_rank", [](const Strategy& s) { return rank(s.pp_rank); }},
    {"tgt_len", [](const Strategy& s) { return number(s.tgt_len); }},
    {"num_labels", [](const Strategy& s) { return number(s.num_labels); }},
    {"text_tokens", [](const Strategy& s) { return number(s.text_tokens); }},
    {"average_tokens_per_sample", [](const Strategy& s) { return s.average_tokens > 0 ? amount(s.average_tokens) : Value(); }},
    {"fsdp.root_unit", [](const Strategy& s) { return is_fsdp(s) ? flag(s.fsdp.root_unit) : Value(); }},
    {"fsdp.mixed_precision", [](const Strategy& s) { return is_fsdp(s) ? flag(s.fsdp.mixed_precision) : Value(); }},
    {"ddp.gradient_as_bucket_view",
     [](const Strategy& s) { return s.data_parallel == DataParallel::ddp ? flag(s.ddp.gradient_as_bucket_view) : Value(); }},
    {"pad_buckets_for_high_nccl_busbw",
     [](const Strategy& s) { return is_megatron(s) ? flag(s.megatron.pad_buckets_for_high_nccl_busbw) : Value(); }},
    {"check_for_nan_in_grad", [](const Strategy& s) { return is_megatron(s) ? flag(s.megatron.check_for_nan_in_grad) : Value(); }},
    {"fsdp_double_buffer",
     [](const Strategy& s) { return s.data_parallel == DataParallel::megatron_fsdp ? flag(s.megatron.fsdp_double_buffer) : Value(); }},
    {"suggested_communication_unit_size",
     [](const Strategy& s) {
       return s.data_parallel == DataParallel::megatron_fsdp ? number(s.megatron.suggested_communication_unit) : Value();
     }},
    {"activation_offload", activation_offload},
    {"offload_layers", [](const Strategy& s) { return s.offload.activations ? number(s.offload.activation_layers) : Value(); }},
    {"fp8_activations", [](const Strategy& s) { return s.low_precision != LowPrecision::none ? flag(s.fp8_activations) : Value(); }},
    {"fp8_attention", [](const Strategy& s) { return s.low_precision != LowPrecision::none ? flag(s.fp8_attention) : Value(); }},
    {"bf16_tail_layers", [](const Strategy& s) { return number(s.bf16_tail_layers); }},
    {"master_dtype", [](const Strategy& s) { return s.master_weights ? Value(*s.master_weights ? "fp32" : "none") : Value(); }},
    {"lora.adapter_dtype", [](const Strategy& s) { return s.lora ? type(s.lora->adapter_dtype) : Value(); }},
    {"trainer",
     [](const Strategy& s) {
       return s.post_training && s.post_training->program != PostTraining::Program::trl
                  ? Value(std::string(strategy::name_in(strategy::trainer_program_names(), s.post_training->program)))
                  : Value();
     }},
    {"reference",
     [](const Strategy& s) {
       return s.post_training && s.post_training->reference != PostTraining::Reference::automatic
                  ? Value(std::string(strategy::name_in(strategy::reference_names(), s.post_training->reference)))
                  : Value();
     }},
    {"teacher", [](const Strategy& s) { return s.post_training && !s.post_training->teacher.empty() ? Value(s.post_training->teacher) : Value(); }},
    {"divergence",
     [](const Strategy& s) {
       return s.post_training && s.post_training->divergence != PostTraining::Divergence::automatic
                  ? Value(std::string(strategy::name_in(strategy::divergence_names(), s.post_training->divergence)))
                  : Value();
     }},
    {"prompt_len", [](const Strategy& s) { return s.post_training ? number(s.post_training->prompt_len) : Value(); }},
    {"supervised_term", [](const Strategy& s) { return s.post_training ? flag(s.post_training->supervised_term) : Value(); }},
    {"disable_dropout", [](const Strategy& s) { return s.post_training ? flag(s.post_training->disable_dropout) : Value(); }},
    {"router_loss", [](const Strategy& s) { return s.post_training ? flag(s.post_training->router_loss) : Value(); }},
    {"kl_batch", [](const Strategy& s) { return s.post_training ? flag(s.post_training->kl_batch) : Value(); }},
    {"rollout",
     [](const Strategy& s) {
       return s.post_training && s.post_training->rollout != PostTraining::Rollout::automatic
                  ? Value(std::string(strategy::name_in(strategy::rollout_names(), s.post_training->rollout)))
                  : Value();
     }},
    {"old_log_probs", [](const Strategy& s) { return s.post_training ? flag(s.post_training->old_log_probs) : Value(); }},
    {"engine_share",
     [](const Strategy& s) {
       return s.post_training && s.post_training->engine_share > 0 ? Value(fmt::format("{}", s.post_training->engine_share)) : Value();
     }},
    {"engine_sleeps", [](const Strategy& s) { return s.post_training && s.post_training->engine_sleeps ? Value("true") : Value(); }},
    {"engine_tp", of_workers<&PostTraining::Workers::engine_tp>},
    {"answers", of_workers<&PostTraining::Workers::answers>},
    {"updates", of_workers<&PostTraining::Workers::updates>},
    {"row_tokens", of_workers<&PostTraining::Workers::row_tokens>},
    {"score_tokens", of_workers<&PostTraining::Workers::score_tokens>},
    {"reference_tokens", of_workers<&PostTraining::Workers::reference_tokens>},
    {"params_rest", of_workers<&PostTraining::Workers::params_rest>},
    {"states_rest", of_workers<&PostTraining::Workers::states_rest>},
    {"scales_logits", of_workers<&PostTraining::Workers::scales_logits>},
    {"learns_entropy", of_workers<&PostTraining::Workers::learns_entropy>},
    {"text_encoders", [](const Strategy& s) { return neighbour_place(s.neighbours.text_encoders); }},
    {"vae", [](const Strategy& s) { return neighbour_place(s.neighbours.vae); }},
    {"host_memory", [](const Strategy& s) { return s.host_memory ? Value(std::to_string(s.host_memory->count)) : Value(); }},
    {"host_loading",
     [](const Strategy& s) {
       return s.host_loading != HostLoading::automatic ? Value(std::string(strategy::name_in(strategy::host_loading_names(), s.host_loading))) : Value();
     }},
    {"trained_modules", [](const Strategy& s) { return list(s.trained_modules); }},
    {"trainable_params", [](const Strategy& s) { return number(s.trainable_params); }},
    {"peft.target_modules", [](const Strategy& s) { return s.peft ? list(s.peft->targets) : Value(); }},
    {"peft.feedforward_modules", [](const Strategy& s) { return s.peft ? list(s.peft->feedforward) : Value(); }},
    {"peft.num_virtual_tokens", [](const Strategy& s) { return s.peft ? number(s.peft->virtual_tokens) : Value(); }},
    {"peft.encoder_hidden_size", [](const Strategy& s) { return s.peft ? number(s.peft->encoder_hidden_size) : Value(); }},
    {"bnb_4bit_quant_storage", [](const Strategy& s) { return type(s.quant_storage); }},
    {"cudnn_attention", [](const Strategy& s) { return flag(s.cudnn_attention); }},
    {"launch_blocking", [](const Strategy& s) { return flag(s.launch_blocking); }},
    {"cudnn", [](const Strategy& s) { return flag(s.cudnn); }},
    {"cuda_graph", [](const Strategy& s) { return Value(s.cuda_graph.empty() ? "false" : s.cuda_graph); }},
    {"comm_overlap", [](const Strategy& s) { return flag(s.comm_overlap); }},
    {"autograd_threads", [](const Strategy& s) { return number(s.autograd_threads); }},
    {"fused_qkv", [](const Strategy& s) { return flag(s.titan.fused_qkv); }},
    {"compiled_loss", [](const Strategy& s) { return flag(s.titan.compiled_loss); }},
    {"rope_positions_given", [](const Strategy& s) { return flag(s.titan.rope_positions_given); }},
    {"rope_cache", [](const Strategy& s) { return text(s.titan.rope_cache); }},
    {"moe_forced_balance", [](const Strategy& s) { return is_mixture(s) ? flag(s.moe.forced_balance) : Value(); }},
    {"moe_imbalance", [](const Strategy& s) { return is_mixture(s) ? amount(s.moe.imbalance) : Value(); }},
    {"moe.moe_expert_capacity_factor", [](const Strategy& s) { return s.moe.capacity_factor ? amount(*s.moe.capacity_factor) : Value(); }},
    {"moe.moe_pad_expert_input_to_capacity",
     [](const Strategy& s) { return s.moe.capacity_factor ? flag(s.moe.pad_to_capacity) : Value(); }},
    {"moe.moe_router_load_balancing_type", [](const Strategy& s) { return text(s.moe.load_balancing); }},
    {"moe.moe_aux_loss_coeff", [](const Strategy& s) { return s.moe.aux_loss_coeff > 0 ? amount(s.moe.aux_loss_coeff) : Value(); }},
    {"allocator.max_split_size_mb",
     [](const Strategy& s) { return s.allocator.max_split_size ? number(s.allocator.max_split_size->count >> 20) : Value(); }},
    {"allocator.roundup_power2_divisions", [](const Strategy& s) { return number(s.allocator.roundup_power2_divisions); }},
    {"allocator.garbage_collection_threshold",
     [](const Strategy& s) {
       return s.allocator.garbage_collection_threshold > 0 ? amount(s.allocator.garbage_collection_threshold) : Value();
     }},
    {"zero_init", [](const Strategy& s) { return is_zero(s) ? flag(s.deepspeed.zero_init) : Value(); }},
    {"zero_wrapper", [](const Strategy& s) { return is_zero(s) ? text(s.deepspeed.wrapper) : Value(); }},
};

// ---- names that stand for others ----------------------------------------------------------------------------------------

struct Alias {
  std::string_view said, meant;  ///< `meant`: several with a space between
};

const Alias kAliases[] = {
    {"seq", "seq_len"},
    {"schedule", "pp_schedule"},
    {"zero", "data_parallel zero_stage"},
    {"zero_stage", "data_parallel zero_stage"},
    {"fsdp", "data_parallel fsdp.strategy"},
    {"wrap", "fsdp.units"},
    {"reshard_after_forward", "fsdp.reshard_after_forward"},
    {"limit_all_gathers", "fsdp.limit_all_gathers"},
    {"fsdp.reduce_dtype", "reduce_dtype"},
    {"fsdp.no_sync", "ddp.no_sync"},
    {"fsdp.shard", "dp_shard"},
    {"fsdp.replicate", "dp_replicate"},
    {"autocast", "precision"},
    {"mixed_precision", "precision"},
    {"fp8_backend", "precision"},
    {"fp8_config.backend", "precision"},
    {"fp8_opt_level", "precision"},
    {"fp8_config.optimization_level", "precision"},
    {"composer_mixed_precision", "reduce_dtype"},
    {"cross_entropy_fusion", "loss"},
    {"tp_async", "async_tp"},
    {"liger", "liger_kernel"},
    {"moe.moe_token_dispatcher_type", "moe_dispatcher"},
    {"deepspeed.train_batch_size", "global_batch"},
    {"deepspeed.train_micro_batch_size_per_gpu", "micro_batch"},
    {"deepspeed.gradient_accumulation_steps", "grad_accum"},
    {"deepspeed.gradient_clipping", "clip_grad_norm"},
    {"deepspeed.bf16.enabled", "precision"},
    {"deepspeed.fp16.enabled", "precision"},
    {"deepspeed.msamp", "precision"},
    {"deepspeed.torch_autocast", "precision"},
    {"deepspeed.optimizer.type", "optimizer optimizer_impl"},
    {"deepspeed.optimizer.params.torch_adam", "optimizer_impl"},
    {"deepspeed.zero_optimization.stage", "data_parallel zero_stage"},
};

}  // namespace

std::optional<std::string> value_of(const Strategy& resolved, std::string_view key) {
  const std::string_view name = key == "fsdp.no_sync" ? "ddp.no_sync" : key;
  for (const Getter& getter : kGetters)
    if (name == getter.key) return getter.get(resolved);
  return {};
}

std::vector<std::string> written_keys() {
  std::vector<std::string> keys;
  for (const Getter& getter : kGetters) keys.emplace_back(getter.key);
  return keys;
}

std::vector<std::string> differences(const Strategy& wanted, const Strategy& found) {
  std::vector<std::string> lines;
  for (const Getter& getter : kGetters) {
    const Value a = getter.get(wanted), b = getter.get(found);
    if (a != b) lines.push_back(fmt::format("{}: {}, not {}", getter.key, a.value_or("(nothing)"), b.value_or("(nothing)")));
  }
  return lines;
}

std::optional<std::string> reported_value(const Strategy& resolved, std::string_view key) {
  for (const Getter& getter : kReported)
    if (key == getter.key) return getter.get(resolved);
  return {};
}

std::vector<std::string> told_as(std::string_view key) {
  const auto has = [&](const auto& table) {
    return std::any_of(std::begin(table), std::end(table), [&](const Getter& getter) { return key == getter.key; });
  };
  for (const Alias& alias : kAliases) {
    if (alias.said != key) continue;
    const std::size_t space = alias.meant.find(' ');
    if (space == std::string_view::npos) return {std::string(alias.meant)};
    return {std::string(alias.meant.substr(0, space)), std::string(alias.meant.substr(space + 1))};
  }
  return has(kGetters) || has(kReported) ? std::vector<std::string>{std::string(key)} : std::vector<std::string>{};
}

std::optional<std::string> ListedKey::value(const Strategy& resolved) const {
  for (const Reader read : readers)
    if (read)
      if (Value value = read(resolved)) return value;
  return {};
}

const std::vector<ListedKey>& listed_keys() {
  static const std::vector<ListedKey> all = [] {
    const auto reader_in = [](const auto& table, std::string_view key) -> ListedKey::Reader {
      const auto* found = std::find_if(std::begin(table), std::end(table), [&](const Getter& getter) { return key == getter.key; });
      return found == std::end(table) ? nullptr : found->get;
    };
    std::vector<ListedKey> keys;
    std::set<std::string> known;
    for (const StrategyOption& option : strategy_options())
      for (std::string& name : told_as(option.key))
        if (known.insert(name).second) {
          ListedKey key{std::move(name), {}};
          key.readers = {reader_in(kGetters, key.name), reader_in(kReported, key.name)};
          keys.push_back(std::move(key));
        }
    return keys;
  }();
  return all;
}

}  // namespace plimsoll::formats

namespace plimsoll {

std::optional<std::string> settled_value(const Strategy& resolved, const std::string& key) {
  static const std::pair<const char*, const char*> kShort[] = {{"seq", "seq_len"}, {"schedule", "pp_schedule"}, {"zero", "zero_stage"}};
  for (const auto& [short_key, whole] : kShort)
    if (key == short_key) return formats::value_of(resolved, whole);
  const auto value = formats::value_of(resolved, key);
  return value ? value : formats::reported_value(resolved, key);
}

}  // namespace plimsoll

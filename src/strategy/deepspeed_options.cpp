// The keys of DeepSpeed's own JSON, and what its launchers say beside it.
#include <algorithm>
#include <string>
#include <vector>

#include "plimsoll/error.hpp"
#include "strategy/msamp.hpp"
#include "strategy/options.hpp"

namespace plimsoll::strategy {
namespace {

/// An optimizer's name in any spelling of DeepSpeed's JSON. Its Adam decays as AdamW does (adam_w_mode is on by default), so that it is
/// what another key calls adamw.
void set_deepspeed_optimizer(Setting& x) {
  static const Names<OptimizerKind> names = {{"AdamW", OptimizerKind::adamw}, {"Adam", OptimizerKind::adam},
                                             {"SGD", OptimizerKind::sgd},     {"Adagrad", OptimizerKind::adagrad},
                                             {"Lion", OptimizerKind::lion},   {"Muon", OptimizerKind::muon}};
  const OptimizerKind kind = x.named(names);
  if (kind == OptimizerKind::adam && x.said(x.s.optimizer) && x.s.optimizer == OptimizerKind::adamw) return;
  x.put(x.s.optimizer, kind);
}

/// DeepSpeed's {"device": "none" | "cpu" | "nvme"}.
void set_offload_device(Setting& x, bool& what, DeepSpeedOptions::Offload& offload) {
  static const Names<int> names = {{"none", 0}, {"cpu", 1}, {"nvme", 2}};
  const int device = x.named(names);
  x.put(what, device != 0);
  x.put(offload.nvme, device == 2);
}

/// A switch that is modelled as DeepSpeed sets it itself and not otherwise.
template <bool by_default>
void keep_default(Setting& x) {
  if (x.truth() != by_default) refuse("this DeepSpeed setting is modelled only as it is by default", x.value.where());
}

void refuse_section(Setting& x) { refuse("this section of DeepSpeed's JSON is not modelled", x.value.where()); }

/// A section that is modelled only when it says {"enabled": false}.
void refuse_enabled(Setting& x) {
  for (const std::string& key : x.value.keys())
    if (key == "enabled" && !x.at(x.value[key]).truth()) return;
  refuse_section(x);
}

/// Ranks among which something is cut that is not modelled under DeepSpeed.
template <const char* what>
void refuse_ranks(Setting& x) {
  if (x.whole(0, 1 << 24) > 1) refuse(std::string(what) + " is not modelled", x.value.where(), "1");
}
constexpr char kUlysses[] = "DeepSpeed's sequence parallelism (Ulysses)";
constexpr char kAutoTp[] = "DeepSpeed's automatic tensor parallelism (AutoTP)";

/// torch.autocast over fp32 weights, as the engine opens it; gradients of the classes named are sent in its type.
void set_torch_autocast(Setting& x) {
  const auto is_given = [&x](const char* key) {
    const auto keys = x.value.keys();
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  const bool enabled = is_given("enabled") && x.at(x.value["enabled"]).truth();
  DType type = DType::bf16;
  if (is_given("dtype")) {
    const std::string& name = x.value["dtype"].text();
    if (name != "bfloat16" && name != "float16" && name != "bf16" && name != "fp16") x.value["dtype"].expected("bfloat16 or float16");
    type = name == "float16" || name == "fp16" ? DType::fp16 : DType::bf16;
  }
  if (is_given("lower_precision_safe_modules"))
    for (const JsonValue& module : x.value["lower_precision_safe_modules"].elements())
      x.s.deepspeed.lower_precision_safe_modules.push_back(module.text());
  if (enabled) x.put(x.s.precision, type == DType::fp16 ? Precision::amp_fp16 : Precision::amp_bf16);
}

/// bf16.enabled and fp16.enabled: under MS-AMP the type of all that is not a linear's weight.
void set_half(Setting& x, DType type) {
  if (!x.truth()) return;
  if (!is_msamp(x.s.precision)) return put_precision(x, type == DType::fp16 ? Precision::fp16 : Precision::bf16);
  if (!x.s.param_dtype) x.s.param_dtype = type;
}

/// The section of MS-AMP's engine (msamp/deepspeed/runtime/config.py): O1 unless said.
void set_msamp(Setting& x) {
  static const Names<Precision> levels = {{"O1", Precision::msamp_o1}, {"O2", Precision::msamp_o2}, {"O3", Precision::msamp_o3}};
  bool enabled = false;
  Precision level = Precision::msamp_o1;
  for (const std::string& key : x.value.keys()) {
    const JsonValue& value = x.value[key];
    if (key == "enabled") {
      enabled = x.at(value).truth();
    } else if (key == "opt_level") {
      level = x.at(value).named(levels);
    } else if (key != "use_te") {
      value.expected("no such key: enabled, opt_level or use_te");
    } else if (x.at(value).truth()) {
      refuse("MS-AMP in Transformer Engine's modules is not modelled", value.where(), "false");
    }
  }
  if (!enabled) return;
  if (x.s.precision == Precision::bf16 || x.s.precision == Precision::fp16) {  // which the same text's bf16 or fp16 section said
    if (!x.s.param_dtype) x.s.param_dtype = x.s.precision == Precision::fp16 ? DType::fp16 : DType::bf16;
    x.retract(x.s.precision, Precision::automatic);
  }
  x.put(x.s.precision, level);
}

/// A size of DeepSpeed's JSON: "auto" is what DeepSpeed takes by itself.
void set_elements(Setting& x, std::int64_t& field) {
  if (x.value.is_text() && x.value.text() == "auto") return;
  x.size(field);
}

}  // namespace

const std::vector<Entry>& deepspeed_entries() {
  static const std::vector<Entry> table = {
      {"zero_init", "true, false", "the model is built sharded", [](Setting& x) { x.flag(x.s.deepspeed.zero_init); }},
      {"reference_prefetch_bucket_size", "elements", "ZeRO-3: stage3_prefetch_bucket_size of a reference's engine, where it is another",
       [](Setting& x) { x.size(x.s.deepspeed.reference_prefetch_bucket_size.emplace()); }},
      {"reference_param_persistence_threshold", "elements", "the same of stage3_param_persistence_threshold",
       [](Setting& x) { x.size(x.s.deepspeed.reference_param_persistence_threshold.emplace()); }},
      {"zero_wrapper", "class", "DeepSpeed's optimizer wrapper", [](Setting& x) { x.name(x.s.deepspeed.wrapper); }},
      {"optimizer_class", "class", "", nullptr},
      {"deepspeed.train_batch_size", "sequences", "global_batch", [](Setting& x) { x.count(x.s.global_batch); }},
      {"deepspeed.train_micro_batch_size_per_gpu", "sequences", "micro_batch", [](Setting& x) { x.count(x.s.micro_batch); }},
      {"deepspeed.gradient_accumulation_steps", "passes", "grad_accum", [](Setting& x) { x.count(x.s.grad_accum); }},
      {"deepspeed.gradient_clipping", "norm", "", set_clip},
      {"deepspeed.bf16.enabled", "true, false", "", [](Setting& x) { set_half(x, DType::bf16); }},
      {"deepspeed.fp16.enabled", "true, false", "", [](Setting& x) { set_half(x, DType::fp16); }},
      {"deepspeed.msamp", "{enabled, opt_level, use_te}", "MS-AMP's engine of DeepSpeed 0.13", set_msamp},
      {"deepspeed.bf16.bf16_master_weights_and_grads", "true, false", "",
       [](Setting& x) { x.flag(x.s.deepspeed.bf16_master_weights_and_grads); }},
      {"deepspeed.bf16.bf16_optimizer_states", "true, false", "", [](Setting& x) { x.flag(x.s.deepspeed.bf16_optimizer_states); }},
      {"deepspeed.fp16.fp16_master_weights_and_grads", "true, false", "",
       [](Setting& x) { x.flag(x.s.deepspeed.fp16_master_weights_and_grads); }},
      {"deepspeed.bf16.*", "", "", nullptr},
      {"deepspeed.fp16.*", "", "", nullptr},
      {"deepspeed.data_types.grad_accum_dtype", "fp32, bf16, fp16", "", [](Setting& x) { x.type(x.s.deepspeed.grad_accum_dtype); }},
      {"deepspeed.optimizer.type", "AdamW, Adam, …", "", set_deepspeed_optimizer},
      {"deepspeed.optimizer.params.torch_adam", "true, false", "torch.optim's Adam in place of FusedAdam and CPUAdam",
       [](Setting& x) {
         if (x.truth()) x.s.optimizer_impl = OptimizerImpl::foreach;
       }},
      {"deepspeed.optimizer.params.*", "", "", nullptr},
      {"deepspeed.scheduler.*", "", "", nullptr},
      {"deepspeed.zero_force_ds_cpu_optimizer", "true, false", "", nullptr},
      {"deepspeed.zero_allow_untested_optimizer", "true, false", "", nullptr},
      {"deepspeed.zero_optimization.stage", "0 … 3", "", set_zero_stage},
      {"deepspeed.zero_optimization.contiguous_gradients", "true, false", "",
       [](Setting& x) { x.flag(x.s.deepspeed.contiguous_gradients); }},
      {"deepspeed.zero_optimization.overlap_comm", "true, false", "", [](Setting& x) { x.flag(x.s.deepspeed.overlap_comm); }},
      {"deepspeed.zero_optimization.reduce_scatter", "true, false", "", [](Setting& x) { x.flag(x.s.deepspeed.reduce_scatter); }},
      {"deepspeed.zero_optimization.reduce_bucket_size", "elements", "",
       [](Setting& x) { set_elements(x, x.s.deepspeed.reduce_bucket_size); }},
      {"deepspeed.zero_optimization.allgather_bucket_size", "elements", "",
       [](Setting& x) { set_elements(x, x.s.deepspeed.allgather_bucket_size); }},
      {"deepspeed.zero_optimization.allgather_partitions", "true, false", "", nullptr},
      {"deepspeed.zero_optimization.sub_group_size", "elements", "", [](Setting& x) { set_elements(x, x.s.deepspeed.sub_group_size); }},
      {"deepspeed.zero_optimization.stage3_prefetch_bucket_size", "elements", "",
       [](Setting& x) { set_elements(x, x.s.deepspeed.stage3_prefetch_bucket_size); }},
      {"deepspeed.zero_optimization.stage3_param_persistence_threshold", "elements", "",
       [](Setting& x) { set_elements(x, x.s.deepspeed.stage3_param_persistence_threshold); }},
      {"deepspeed.zero_optimization.stage3_model_persistence_threshold", "elements", "",
       [](Setting& x) { set_elements(x, x.s.deepspeed.stage3_model_persistence_threshold); }},
      {"deepspeed.zero_optimization.stage3_max_live_parameters", "elements", "",
       [](Setting& x) { set_elements(x, x.s.deepspeed.stage3_max_live_parameters); }},
      {"deepspeed.zero_optimization.stage3_max_reuse_distance", "elements", "",
       [](Setting& x) { set_elements(x, x.s.deepspeed.stage3_max_reuse_distance); }},
      {"deepspeed.zero_optimization.stage3_gather_16bit_weights_on_model_save", "true, false", "", nullptr},
      {"deepspeed.zero_optimization.zero_hpz_partition_size", "ranks", "",
       [](Setting& x) { x.s.deepspeed.zero_hpz_partition_size = static_cast<int>(x.whole(1, 1 << 20)); }},
      {"deepspeed.zero_optimization.mics_shard_size", "ranks", "",
       [](Setting& x) { x.s.deepspeed.mics_shard_size = static_cast<int>(x.whole(-1, 1 << 20)); }},
      {"deepspeed.zero_optimization.zero_quantized_weights", "true, false", "",
       [](Setting& x) { x.flag(x.s.deepspeed.zero_quantized_weights); }},
      {"deepspeed.zero_optimization.zero_quantized_gradients", "true, false", "",
       [](Setting& x) { x.flag(x.s.deepspeed.zero_quantized_gradients); }},
      {"deepspeed.zero_optimization.round_robin_gradients", "true, false", "",
       [](Setting& x) { x.flag(x.s.deepspeed.round_robin_gradients); }},
      {"deepspeed.zero_optimization.stage3_use_all_reduce_for_fetch_params", "true, false", "",
       [](Setting& x) { x.flag(x.s.deepspeed.use_all_reduce_for_fetch_params); }},
      {"deepspeed.zero_optimization.stage3_allgather_sequential", "true, false", "",
       [](Setting& x) { x.flag(x.s.deepspeed.allgather_sequential); }},
      {"deepspeed.zero_optimization.leaf_module", "none", "", refuse_section},
      {"deepspeed.zero_optimization.stage3_module_granularity_threshold", "0", "",
       [](Setting& x) {
         if (x.whole(0, INT64_MAX) != 0) refuse("leaf modules by their granularity are not modelled", x.value.where(), "0");
       }},
      {"deepspeed.zero_optimization.zero_quantized_nontrainable_weights", "false", "", keep_default<false>},
      {"deepspeed.zero_optimization.parameter_alignment", "false", "", keep_default<false>},
      {"deepspeed.zero_optimization.use_multi_rank_bucket_allreduce", "true", "", keep_default<true>},
      {"deepspeed.zero_optimization.memory_efficient_linear", "true", "", keep_default<true>},
      {"deepspeed.zero_optimization.compute_grad_norm", "true", "", keep_default<true>},
      {"deepspeed.zero_optimization.load_from_fp32_weights", "true, false", "", nullptr},
      {"deepspeed.zero_optimization.elastic_checkpoint", "true, false", "", nullptr},
      {"deepspeed.zero_optimization.ignore_unused_parameters", "true, false", "", nullptr},
      {"deepspeed.zero_optimization.offload_optimizer.device", "none, cpu, nvme", "",
       [](Setting& x) { set_offload_device(x, x.s.offload.optimizer, x.s.deepspeed.offload_optimizer); }},
      {"deepspeed.zero_optimization.offload_optimizer.pin_memory", "true, false", "",
       [](Setting& x) { x.flag(x.s.deepspeed.offload_optimizer.pin_memory); }},
      {"deepspeed.zero_optimization.offload_optimizer.buffer_count", "buffers", "NVMe",
       [](Setting& x) { set_elements(x, x.s.deepspeed.offload_optimizer.buffer_count); }},
      {"deepspeed.zero_optimization.offload_optimizer.pipeline_read", "true, false", "NVMe",
       [](Setting& x) { x.flag(x.s.deepspeed.offload_optimizer.pipeline_read); }},
      {"deepspeed.zero_optimization.offload_optimizer.pipeline_write", "true, false", "NVMe",
       [](Setting& x) { x.flag(x.s.deepspeed.offload_optimizer.pipeline_write); }},
      {"deepspeed.zero_optimization.offload_optimizer.fast_init", "true, false", "NVMe",
       [](Setting& x) { x.flag(x.s.deepspeed.offload_optimizer.fast_init); }},
      {"deepspeed.zero_optimization.offload_optimizer.ratio", "0 … 1", "share of the sub-groups that is updated on the host",
       [](Setting& x) { x.s.deepspeed.offload_optimizer.ratio = x.value.number(0, 1); }},
      {"deepspeed.zero_optimization.offload_optimizer.super_offload", "false", "", keep_default<false>},
      {"deepspeed.zero_optimization.offload_optimizer.nvme_path", "path", "", nullptr},
      {"deepspeed.zero_optimization.offload_optimizer.cpuadam_cores_perc", "0 … 1", "", nullptr},
      {"deepspeed.zero_optimization.offload_param.device", "none, cpu, nvme", "",
       [](Setting& x) { set_offload_device(x, x.s.offload.params, x.s.deepspeed.offload_param); }},
      {"deepspeed.zero_optimization.offload_param.pin_memory", "true, false", "",
       [](Setting& x) { x.flag(x.s.deepspeed.offload_param.pin_memory); }},
      {"deepspeed.zero_optimization.offload_param.buffer_count", "buffers", "NVMe",
       [](Setting& x) { set_elements(x, x.s.deepspeed.offload_param.buffer_count); }},
      {"deepspeed.zero_optimization.offload_param.buffer_size", "elements", "NVMe",
       [](Setting& x) { set_elements(x, x.s.deepspeed.offload_param.buffer_size); }},
      {"deepspeed.zero_optimization.offload_param.max_in_cpu", "elements", "NVMe",
       [](Setting& x) { set_elements(x, x.s.deepspeed.offload_param.max_in_cpu); }},
      {"deepspeed.zero_optimization.offload_param.nvme_path", "path", "", nullptr},
      {"deepspeed.zero_optimization.zenflow", "none", "", refuse_section},
      {"deepspeed.communication_data_type", "fp32, bf16, fp16", "gradients on their way",
       [](Setting& x) { x.type(x.s.deepspeed.communication_data_type); }},
      {"deepspeed.prescale_gradients", "true, false", "", [](Setting& x) { x.flag(x.s.deepspeed.prescale_gradients); }},
      {"deepspeed.gradient_predivide_factor", "factor", "",
       [](Setting& x) { x.s.deepspeed.gradient_predivide_factor = x.value.number(0, 1e9); }},
      {"deepspeed.torch_autocast", "{enabled, dtype, lower_precision_safe_modules}", "", set_torch_autocast},
      {"deepspeed.activation_checkpointing.*", "", "", nullptr},
      {"deepspeed.sequence_parallel_size", "1", "", refuse_ranks<kUlysses>},
      {"deepspeed.tensor_parallel.autotp_size", "1", "", refuse_ranks<kAutoTp>},
      {"deepspeed.tensor_parallel.*", "", "", nullptr},
      {"deepspeed.compile.deepcompile", "false", "", keep_default<false>},
      {"deepspeed.compile.*", "", "", nullptr},
      {"deepspeed.compression_training", "none", "", refuse_section},
      {"deepspeed.expert_parallel", "{enabled: false}", "", refuse_enabled},
      {"deepspeed.hybrid_engine", "{enabled: false}", "", refuse_enabled},
      {"deepspeed.amp", "{enabled: false}", "", refuse_enabled},
      {"deepspeed.data_efficiency", "{enabled: false}", "", refuse_enabled},
      {"deepspeed.curriculum_learning", "{enabled: false}", "", refuse_enabled},
      {"deepspeed.progressive_layer_drop", "{enabled: false}", "", refuse_enabled},
      {"deepspeed.eigenvalue", "{enabled: false}", "", refuse_enabled},
      {"deepspeed.elasticity", "{enabled: false}", "", refuse_enabled},
      {"deepspeed.checkpoint.*", "", "", nullptr},
      {"deepspeed.tensorboard.*", "", "", nullptr},
      {"deepspeed.wandb.*", "", "", nullptr},
      {"deepspeed.csv_monitor.*", "", "", nullptr},
      {"deepspeed.dump_state", "true, false", "", nullptr},
      {"deepspeed.memory_breakdown", "true, false", "", nullptr},
      {"deepspeed.sparse_gradients", "false", "", keep_default<false>},
      {"deepspeed.wall_clock_breakdown", "true, false", "", nullptr},
      {"deepspeed.steps_per_print", "steps", "", nullptr},
      {"deepspeed.flops_profiler.*", "", "", nullptr},
      {"deepspeed.comms_logger.*", "", "", nullptr},
      {"deepspeed.aio.block_size", "bytes", "NVMe",
       [](Setting& x) {  // swap_tensor: what is smaller than a block or 1 MiB, whichever is more, stays in memory
         if (x.whole(1, INT64_MAX) > 1 << 20) refuse("blocks of more than 1 MiB are not modelled", x.value.where(), "1048576");
       }},
      {"deepspeed.aio.*", "", "", nullptr},
      {"deepspeed.autotuning.*", "", "", nullptr},
  };
  return table;
}

}  // namespace plimsoll::strategy

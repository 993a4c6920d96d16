// DeepSpeed ZeRO over Hugging Face's modules, and Megatron-DeepSpeed over Megatron's.
#include "framework/catalogue.hpp"
#include "framework/peft.hpp"
#include "strategy/msamp.hpp"

namespace plimsoll::framework {
namespace {

/// The wrapper that DeepSpeedEngine._configure_optimizer chooses (runtime/engine.py).
std::string wrapper_of(const Strategy& s) {
  const bool adam = s.optimizer == OptimizerKind::adam || s.optimizer == OptimizerKind::adamw;
  const bool fused = adam && s.optimizer_impl == OptimizerImpl::fused;  // deepspeed.ops.adam.FusedAdam
  const bool fp32_accumulation = s.deepspeed.grad_accum_dtype == DType::fp32;
  if (is_msamp(s.precision)) return s.data_parallel == DataParallel::zero0 ? "FP8Optimizer" : "FP8DeepSpeedZeroOptimizer";
  if (s.data_parallel == DataParallel::zero3) return "DeepSpeedZeroOptimizer_Stage3";
  if (s.data_parallel == DataParallel::zero2) return "DeepSpeedZeroOptimizer";
  const bool bf16 = s.precision == Precision::mixed_bf16;
  if (bf16 && fp32_accumulation) return "BF16_Optimizer";
  if (s.data_parallel == DataParallel::zero1) return "DeepSpeedZeroOptimizer";
  return fused ? "FP16_Optimizer" : "FP16_UnfusedOptimizer";
}

/// The engine casts every parameter to its type, but none of a model that zero.Init has cut up (_cast_module_mixed_precision): adapters
/// that were put into that one stay as PEFT made them.
void complete_adapter_type(Strategy& s) {
  if (!s.lora || !s.param_dtype) return;
  std::optional<DType>& type = s.lora->adapter_dtype;
  if (s.deepspeed.zero_init.value_or(false)) {
    if (type) return;
    const Release peft = s.releases.of(Package::peft);
    type = adapter_type(peft, *s.param_dtype);
    s.assumed.push_back("lora.adapter_dtype: " + std::string(name_of(*type)) + " (PEFT " + peft.text() + "'s own, behind zero.Init)");
  } else {
    if (type && *type != *s.param_dtype)
      s.assumed.push_back("lora.adapter_dtype: " + std::string(name_of(*s.param_dtype)) + " (the engine casts all parameters)");
    type = s.param_dtype;
  }
}

void complete(Strategy& s, const Model& model) {
  complete_peft(s, model);
  auto& ds = s.deepspeed;
  const bool stage3 = s.data_parallel == DataParallel::zero3;
  if (!ds.overlap_comm) ds.overlap_comm = stage3;
  if (is_msamp(s.precision) && s.data_parallel == DataParallel::zero1) ds.overlap_comm = ds.round_robin_gradients = false;  // ignored
  if (!ds.zero_init) {
    ds.zero_init = stage3;
    if (stage3) s.assumed.push_back("zero_init: the model is built inside deepspeed.zero.Init");
  }
  complete_adapter_type(s);
  if (ds.wrapper.empty()) ds.wrapper = wrapper_of(s);
  if (const Release release = s.releases.of(Package::deepspeed); !release.since(0, 12))
    s.assumed.push_back("deepspeed " + release.text() + ": the engine is 0.12's, whose ZeRO keeps up to a quarter more memory reserved");
  const bool pins = s.releases.of(Package::deepspeed).since(0, 19, 5);  // zero/offload_config.py, pin_memory
  for (auto* offload : {&ds.offload_optimizer, &ds.offload_param})
    if (!offload->pin_memory) offload->pin_memory = pins;
  if (ds.offload_optimizer.buffer_count == 0) ds.offload_optimizer.buffer_count = 4;
  if (ds.offload_param.buffer_count == 0) ds.offload_param.buffer_count = 5;
}

/// What MS-AMP's engine raises itself (msamp/__init__.py, msamp/deepspeed/runtime).
void check_msamp(const Strategy& s, Complaints& complaints) {
  const bool adam = s.optimizer == OptimizerKind::adam || s.optimizer == OptimizerKind::adamw;
  if (!adam) complaints.add("MS-AMP casts Adam and AdamW alone", "set optimizer adamw or adam");
  const bool stage0 = s.data_parallel == DataParallel::zero0;
  if (s.data_parallel == DataParallel::zero3) complaints.add("MS-AMP's weights are no parameters that ZeRO-3 could cut", "set zero 1 or 2");
  if (stage0 && s.precision == Precision::msamp_o3) complaints.add("MS-AMP's O3 is for ZeRO-1 and 2", "set zero 1 or 2");
  if (stage0 && s.param_dtype == DType::bf16)
    complaints.add("MS-AMP's optimizer without ZeRO fails in bf16: its engine asks for a process group that it lacks",
                   "set param_dtype fp16");
  if (s.offload.any()) complaints.add("MS-AMP's ZeRO offloads nothing", "leave the offload out");
  if (!s.deepspeed.contiguous_gradients) complaints.add("MS-AMP's ZeRO has contiguous gradients alone", "set contiguous_gradients true");
  if (!s.deepspeed.reduce_scatter) complaints.add("MS-AMP's ZeRO reduces 8-bit gradients to their ranks alone", "set reduce_scatter true");
}

void check(const Strategy& s, const Model&, Complaints& complaints) {
  if (is_msamp(s.precision)) check_msamp(s, complaints);
  const auto& ds = s.deepspeed;
  const bool stage3 = s.data_parallel == DataParallel::zero3, stage0 = s.data_parallel == DataParallel::zero0;
  if (s.offload.params && !stage3)
    complaints.add("DeepSpeed offloads parameters with ZeRO-3 only", "set zero 3 or leave offload.params out");
  if (s.offload.optimizer && stage0)
    complaints.add("DeepSpeed offloads optimizer states with ZeRO-1, 2 or 3", "set zero 2 or leave the offload out");
  if (stage0 && ds.grad_accum_dtype && s.param_dtype && *ds.grad_accum_dtype != *s.param_dtype)
    complaints.add("DeepSpeed without ZeRO accumulates gradients in the weights' type, " + std::string(name_of(*s.param_dtype)) +
                       ", not in " + std::string(name_of(*ds.grad_accum_dtype)),
                   "set zero 1 or leave grad_accum_dtype out");
  const bool scatters = ds.reduce_scatter && (stage3 || s.data_parallel == DataParallel::zero2);
  if (scatters && (ds.prescale_gradients || ds.gradient_predivide_factor != 1))
    complaints.add("DeepSpeed's ZeRO-2 and 3 do not scale gradients that they reduce-scatter",
                   "set reduce_scatter false, or leave prescale_gradients and gradient_predivide_factor out");
  if (ds.zero_hpz_partition_size > 1 && !stage3) complaints.add("zero_hpz_partition_size is part of ZeRO-3", "set zero 3 or leave it out");
  if (ds.zero_hpz_partition_size > 1 && s.dp % ds.zero_hpz_partition_size != 0)
    complaints.add("zero_hpz_partition_size " + std::to_string(ds.zero_hpz_partition_size) + " does not divide dp " + std::to_string(s.dp),
                   "choose one that does (GPUs of a node)");
}

/// PipelineEngine.__init__: what Megatron-DeepSpeed runs under without --no-pipeline-parallel.
void check_megatron(const Strategy& s, const Model& model, Complaints& complaints) {
  check(s, model, complaints);
  if (s.pp > 1 && (s.data_parallel == DataParallel::zero2 || s.data_parallel == DataParallel::zero3))
    complaints.add("ZeRO-2 and ZeRO-3 are incompatible with DeepSpeed's pipeline parallelism (PipelineEngine asserts)",
                   "set zero 1, or pp to 1");
}

}  // namespace

Entry deepspeed() {
  FrameworkProfile p;
  p.name = "deepspeed";
  p.title = "DeepSpeed ZeRO over transformers";
  p.source = "DeepSpeed 0.19.8 (0.16.9 where it differs); MS-AMP 0.4 over DeepSpeed 0.13.1";
  p.code = ModelCode::transformers;
  p.bf16 = Precision::mixed_bf16;
  p.fp16 = Precision::mixed_fp16;
  p.data_parallel = DataParallel::zero0;
  p.optimizer_impl = OptimizerImpl::fused;
  p.kinds = {DataParallel::zero0, DataParallel::zero1, DataParallel::zero2, DataParallel::zero3};
  p.attentions = {AttentionKernel::sdpa,   AttentionKernel::eager,  AttentionKernel::flash,
                  AttentionKernel::flash3, AttentionKernel::flash4, AttentionKernel::memory_efficient};
  p.losses = {LossKernel::cross_entropy, LossKernel::liger, LossKernel::liger_fused_linear, LossKernel::cut_cross_entropy};
  p.recomputes = {Recompute::Kind::none, Recompute::Kind::full};
  p.low_precisions = {LowPrecision::none};
  p.adapters = true;
  return {p, nullptr, complete, check};
}

Entry megatron_deepspeed() {
  FrameworkProfile p;
  p.name = "megatron-deepspeed";
  p.title = "Megatron-DeepSpeed";
  p.source = "Megatron-DeepSpeed's GPT pretraining, DeepSpeed 0.8 and later";
  p.code = ModelCode::megatron_legacy;
  p.bf16 = Precision::mixed_bf16;
  p.fp16 = Precision::mixed_fp16;
  p.data_parallel = DataParallel::zero1;
  p.optimizer_impl = OptimizerImpl::fused;
  p.attention = AttentionKernel::unfused;
  p.loss = LossKernel::vocab_parallel;
  p.kinds = {DataParallel::ddp, DataParallel::zero0, DataParallel::zero1, DataParallel::zero2, DataParallel::zero3};
  p.attentions = {AttentionKernel::unfused, AttentionKernel::flash};
  p.losses = {LossKernel::vocab_parallel};
  p.recomputes = {Recompute::Kind::none, Recompute::Kind::full};
  p.low_precisions = {LowPrecision::none};
  p.schedules = {"1f1b"};
  p.stages = StageSplit::leading;
  p.tensor = p.sequence_parallel = true;
  return {p, nullptr, complete, check_megatron};
}

}  // namespace plimsoll::framework

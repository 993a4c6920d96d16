// Hugging Face's modules, run eagerly by a plain PyTorch loop, Trainer, Accelerate or PEFT.
#include "framework/transformers.hpp"

#include <set>

#include "framework/catalogue.hpp"
#include "framework/model_classes.hpp"
#include "framework/peft.hpp"
#include "plimsoll/error.hpp"
#include "strategy/msamp.hpp"

namespace plimsoll::framework {

bool has_sdpa(const std::string& model_type, const Release& release) {
  static const std::set<std::string> without = {"bloom",   "codegen", "deberta", "deberta-v2", "gemma2",    "gpt_neo",
                                                "gpt_oss", "gptj",    "mpnet",   "mpt",        "vaultgemma"};
  const TypesSince& since = types_since(Package::transformers, "sdpa");
  const auto found = since.find(model_type);
  return without.count(model_type) == 0 && !(release.with_date(0) < (found == since.end() ? Release(4, 36) : found->second));
}

bool checkpoints_reentrantly(const Strategy& s) { return !s.releases.of(Package::transformers).since(5, 0); }

namespace {

void complete(Strategy& s, const Model& model) {
  complete_peft(s, model);
  if (s.offload.activations && s.offload.activations_by == Offload::By::automatic) {
    s.offload.activations_by = Offload::By::save_on_cpu;
    s.assumed.push_back("activation_offload: save-on-cpu");
  }
  if (!s.lora || s.lora->adapter_dtype) return;
  // diffusers' scripts inject them without PEFT's model around it, and cast those of fp16 alone (cast_training_params).
  if (s.framework == "diffusers" && s.param_dtype == DType::bf16) {
    s.lora->adapter_dtype = DType::bf16;
    s.assumed.push_back("lora.adapter_dtype: bf16 (the weights', into which diffusers injects them)");
    return;
  }
  const Release peft = s.releases.of(Package::peft);
  const bool whole = s.base_weights == BaseWeights::as_trained;
  s.lora->adapter_dtype = whole ? adapter_type(peft, s.param_dtype.value_or(DType::fp32)) : DType::fp32;
  s.assumed.push_back("lora.adapter_dtype: " + std::string(name_of(*s.lora->adapter_dtype)) + " (PEFT " + peft.text() + "'s own)");
}

/// What MS-AMP and Accelerate around it raise themselves.
void check_msamp(const Strategy& s, const Model&, Complaints& complaints) {
  const bool msamp = is_msamp(s.precision);
  if (s.precision == Precision::msamp_o3)
    complaints.add("MS-AMP has its O3 in its own DeepSpeed engine alone", "set framework deepspeed, or precision msamp-o1 or msamp-o2");
  else if (msamp && s.data_parallel != DataParallel::none && s.data_parallel != DataParallel::ddp)
    complaints.add("Accelerate has no MS-AMP under FSDP", "set data_parallel ddp or none");
  if (msamp && s.optimizer != OptimizerKind::adam && s.optimizer != OptimizerKind::adamw)
    complaints.add("MS-AMP casts Adam and AdamW alone", "set optimizer adamw or adam");
}

/// The type of what is trained: the adapters', or the weights'.
DType trained_type(const Strategy& s) { return s.lora && s.lora->adapter_dtype ? *s.lora->adapter_dtype : s.param_dtype.value_or(DType::fp32); }

/// torch's GradScaler, which Accelerate puts around fp16: its kernel knows no bf16 (grad_scaler.py, _unscale_grads_).
void check_scaler(const Strategy& s, Complaints& complaints) {
  if (s.precision != Precision::amp_fp16 || trained_type(s) != DType::bf16) return;
  complaints.add("torch's GradScaler fails at gradients of bf16 parameters: NotImplementedError: "
                 "\"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'",
                 "set precision bf16");
}

void check_accelerate(const Strategy& s, const Model& model, Complaints& complaints) {
  check_msamp(s, model, complaints);
  check_scaler(s, complaints);
}

FrameworkProfile profile() {
  FrameworkProfile p;
  p.name = "transformers";
  p.title = "Hugging Face transformers on PyTorch, by a loop of its own";
  p.aliases = {"torch", "pytorch", "hf-transformers", "hf-peft"};
  p.source = "transformers 5.23, torch 2.15";
  p.code = ModelCode::transformers;
  p.kinds = {DataParallel::none, DataParallel::ddp, DataParallel::fsdp1, DataParallel::fsdp2};
  p.attentions = {AttentionKernel::sdpa,   AttentionKernel::eager,  AttentionKernel::flash,
                  AttentionKernel::flash3, AttentionKernel::flash4, AttentionKernel::memory_efficient,
                  AttentionKernel::cudnn};
  p.losses = {LossKernel::cross_entropy, LossKernel::compiled, LossKernel::liger, LossKernel::liger_fused_linear,
              LossKernel::cut_cross_entropy};
  p.recomputes = {Recompute::Kind::none, Recompute::Kind::full, Recompute::Kind::alternate};
  p.low_precisions = {LowPrecision::none, LowPrecision::fp8};
  p.adapters = p.offload_activations = true;
  return p;
}

}  // namespace

Entry transformers() { return {profile(), nullptr, complete, check_msamp}; }

/// The same modules as Accelerate prepares them, for transformers' Trainer or another loop: autocast around whatever wraps the model,
/// outputs in fp32, FSDP2's units cut its way, the optimizer in two groups.
Entry accelerate() {
  FrameworkProfile p = profile();
  p.name = "accelerate";
  p.title = "Hugging Face transformers under Accelerate: Trainer, TRL, axolotl, LLaMA-Factory";
  p.aliases = {"trainer", "hf-accelerate", "hf-trainer"};
  p.source = "transformers 5.23, accelerate 1.15, torch 2.15";
  return {p, nullptr, complete, check_accelerate};
}

/// The diffusion transformers of diffusers, run the same way; the loss is a mean squared error.
Entry diffusers() {
  FrameworkProfile p = profile();
  p.name = "diffusers";
  p.title = "Hugging Face diffusers on PyTorch";
  p.aliases = {};
  p.source = "diffusers 0.42, torch 2.15";
  p.code = ModelCode::diffusers;
  p.losses = {LossKernel::cross_entropy};
  p.low_precisions = {LowPrecision::none};
  return {p, nullptr, complete, check_msamp};
}

}  // namespace plimsoll::framework

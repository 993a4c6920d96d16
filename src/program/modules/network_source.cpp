#include "program/modules/network_source.hpp"

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "strategy/msamp.hpp"

namespace plimsoll::program {

const NetworkSource* network_source(const Model& model) { return dynamic_cast<const NetworkSource*>(model.source.get()); }

void refuse_beside_source(const NetworkSource& source, const Strategy& s) {
  const bool own = source.library() == CodeLibrary::none, diffusers = source.library() == CodeLibrary::diffusers,
             plain = source.library() != CodeLibrary::transformers;
  const auto require = [](bool modelled, const std::string& what, const std::string& key, const std::string& instead) {
    if (!modelled) refuse(what + " is not modelled of a model that is read from code", key, instead);
  };
  const bool known = diffusers ? s.framework == "diffusers"
                               : s.framework == "transformers" || (!plain && (s.framework == "accelerate" || s.framework == "deepspeed"));
  require(known, "the training loop of '" + s.framework + "'", "framework",
          diffusers ? "diffusers"
          : plain   ? "transformers, whose loop is plain PyTorch's"
                    : "transformers, accelerate or deepspeed");
  const bool whole = s.data_parallel == DataParallel::none || s.data_parallel == DataParallel::ddp;
  require(whole || !diffusers, "sharding of a class of diffusers", "data_parallel", "none or ddp");
  const bool scores_texts = s.post_training && !s.post_training->by_verl() && !s.post_training->writes_answers();
  const bool trained = !plain && scores_texts && s.post_training->kind != PostTraining::Kind::reward;
  require(!s.post_training || trained, "this trainer's own loss", "task", plain ? "lm" : "lm, sft, dpo, kto, orpo or cpo");
  require(!is_msamp(s.precision), "MS-AMP", "precision", "amp-bf16");
  require(s.compile == Strategy::Compile::no || s.compile == Strategy::Compile::blocks, "torch.compile of the whole model", "compile",
          "blocks");
  require(s.compile == Strategy::Compile::no || !plain, "torch.compile", "compile", "none");
  const bool recomputes = s.recompute.kind != Recompute::Kind::none && s.recompute.kind != Recompute::Kind::automatic;
  require(!recomputes || !own, "recomputation by the framework", "recompute", "none");
  const bool as_it_is = s.attention == AttentionKernel::automatic || s.attention == AttentionKernel::sdpa;
  require(as_it_is || !plain, "another attention than the code's own", "attention", "leave it out");
  require(as_it_is || s.attention == AttentionKernel::eager || is_flash(s.attention), "attention by such kernels", "attention", "sdpa, eager or flash");
  const bool prompts = s.peft && (s.peft->method == PeftMethod::prompt_tuning || s.peft->method == PeftMethod::p_tuning);
  require(!prompts, "prompts before the text", "task", "lora, ia3 or ln_tuning");
  require(!s.lora || !s.lora->has_kernels(), "axolotl's kernels of adapters", "lora", "leave them out");
  require(s.base_weights == BaseWeights::as_trained || !plain, "quantised weights", "base_weights", "leave it out");
  require(s.low_precision != LowPrecision::fp8, "8-bit linears", "fp8", "leave it out");
  require(s.optimizer != OptimizerKind::muon, "Muon, which asks which weights are hidden ones,", "optimizer", "adamw");
  require(!s.liger_kernel || !plain, "Liger", "liger_kernel", "leave it out");
  const bool liger_loss = !plain && (s.loss == LossKernel::liger || s.loss == LossKernel::liger_fused_linear);
  require(liger_loss || s.loss == LossKernel::automatic || s.loss == LossKernel::cross_entropy, "another loss than the code's own", "loss", "ce");
}

namespace {

bool is_built_on_the_host(const NetworkSource& source) {
  return source.library() == CodeLibrary::none || source.library() == CodeLibrary::timm;
}

}  // namespace

Arrival arrival_of(const Model& model, bool prepared_by_accelerate) {
  const NetworkSource* const source = network_source(model);
  return prepared_by_accelerate || (source != nullptr && is_built_on_the_host(*source)) ? Arrival::moved : Arrival::empty;
}

}  // namespace plimsoll::program

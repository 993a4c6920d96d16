// Training behind supervised training: TRL's DPOTrainer and GRPOTrainer over transformers' modules, as Accelerate or DeepSpeed prepares them.
#include "framework/post_training.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "plimsoll/error.hpp"
#include "strategy/names.hpp"

namespace plimsoll::framework {
namespace {

using Kind = PostTraining::Kind;
using Reference = PostTraining::Reference;
using Rollout = PostTraining::Rollout;

/// TRL where nobody says: the one that was out when the transformers that was said came out, else the newest.
void take_trl(Resolver& r) {
  Strategy& s = r.s;
  if (s.releases.find(Package::trl)) return;
  const Releases::Entry* transformers = s.releases.find(Package::transformers);
  const bool dated = transformers && transformers->origin == Releases::Origin::said && transformers->release.date() > 0;
  const Release release = dated ? release_out_on(Package::trl, transformers->release.date()) : facts_of(Package::trl).newest;
  const std::string why = dated ? "of the time of transformers " + transformers->release.text() : "the newest that was read";
  s.releases.put(Package::trl, release, Releases::Origin::assumed, why);
  r.assume("trl: " + release.text() + " (" + why + ")");
}

/// GRPOConfig's beta is 0 since 0.18: no KL term, no reference.
void take_reference(Resolver& r) {
  PostTraining& post = *r.s.post_training;
  Reference& reference = post.reference;
  const bool needs_none = post.kind == Kind::grpo && r.s.releases.of(Package::trl).since(0, 18);
  if (post.kind == Kind::sft) {
    if (reference != Reference::automatic) fail("supervised fine-tuning compares with nothing", "reference", "leave it out");
    reference = Reference::none;
    return;
  }
  if (reference == Reference::automatic && needs_none) {
    reference = Reference::none;
    r.assume("reference: none (beta 0, GRPOConfig's since TRL 0.18)");
  } else if (reference == Reference::automatic) {
    reference = r.s.lora ? Reference::adapter_off : Reference::model;
    r.assume(r.s.lora ? "reference: adapter-off (the model itself with its adapters switched off)"
                      : "reference: model (a frozen copy of the model)");
  }
  if (reference == Reference::adapter_off && !r.s.lora) fail("only a model with adapters can switch them off", "reference", "model, or give --lora.r");
  if (reference == Reference::model && r.s.lora)
    fail("TRL takes no model of reference beside adapters, which it switches off instead", "reference", "adapter-off");
  if (reference == Reference::none && post.kind == Kind::dpo)
    fail("DPO compares with a reference", "reference", "model, adapter-off or precomputed");
  if (reference == Reference::precomputed && post.kind == Kind::grpo)
    fail("answers that are written in training have no numbers from before it", "reference", "model, adapter-off or none");
}

void take_lengths(Resolver& r) {
  Strategy& s = r.s;
  std::int64_t& prompt = s.post_training->prompt_len;
  if (prompt == 0) {
    prompt = 1;  // which no label stands for
    if (s.post_training->kind != Kind::sft)
      r.assume(fmt::format("prompt_len: 1 of {} tokens (a longer prompt leaves fewer tokens to score)", s.seq_len));
  }
  if (prompt >= s.seq_len)
    fail(fmt::format("a prompt of {} tokens leaves no answer of {} tokens", prompt, s.seq_len), "prompt_len",
         "less than seq_len, which counts the prompt and an answer");
}

/// GRPOConfig's vllm_mode is "colocate" since 1.0, and its share of the device 0.3.
void take_rollout(Resolver& r) {
  PostTraining& post = *r.s.post_training;
  if (post.rollout == Rollout::automatic) {
    const bool beside = r.s.releases.of(Package::trl).since(1, 0) || post.engine_share > 0 || post.engine_sleeps;
    post.rollout = beside ? Rollout::colocated : Rollout::elsewhere;
    r.assume(beside ? "rollout: colocated (vLLM beside the trainer, on the same devices)" : "rollout: elsewhere (vLLM on devices of its own)");
  }
  const bool colocated = post.rollout == Rollout::colocated;
  if (!colocated && (post.engine_share > 0 || post.engine_sleeps))
    fail("an engine on devices of its own takes nothing of the trainer's", post.engine_sleeps ? "engine_sleeps" : "engine_share", "rollout colocated");
  if (colocated && post.engine_share <= 0) {
    post.engine_share = 0.3;
    r.assume("engine_share: 0.3 (TRL's vllm_gpu_memory_utilization)");
  }
  if (!post.old_log_probs) {
    post.old_log_probs = true;
    r.assume("old_log_probs: true (TRL scores what vLLM wrote once more, for its importance sampling)");
  }
}

void refuse_other_kinds_keys(const PostTraining& post) {
  if (post.kind == Kind::grpo) return;
  if (post.rollout != Rollout::automatic || post.engine_share > 0 || post.engine_sleeps || post.old_log_probs)
    fail("no answers are written: an engine is GRPO's", "task", "grpo, or leave rollout and engine's keys out");
}

/// Since 1.8 the trainers ask a mixture for its routers' logits and add their auxiliary loss (router_aux_loss_coef).
void refuse_routers_loss(const Resolver& r) {
  const bool mixture = std::any_of(r.model.blocks.begin(), r.model.blocks.end(), [](const Block& block) { return block.moe.has_value(); });
  if (mixture && r.s.releases.of(Package::trl).since(1, 7))
    refuse("the routers' auxiliary loss that TRL since 1.8 adds of a mixture is not modelled", "releases.trl", "1.6 or earlier, which has none");
}

}  // namespace

void complete_post_training(Resolver& r) {
  Strategy& s = r.s;
  if (!s.post_training) return;
  if (s.post_training->kind == Kind::automatic)
    fail("reference, prompt_len, rollout and the engine's keys are of TRL's trainers, and no such task is said", "task", "dpo or grpo");
  if (s.framework != "accelerate" && s.framework != "deepspeed")
    refuse(fmt::format("{} is modelled as TRL does it, which {} does not run", strategy::name_in(strategy::post_training_names(), s.post_training->kind), s.framework), "task",
           "framework accelerate or deepspeed");
  if (r.model.task != Model::Task::causal_lm) refuse("TRL's trainers are modelled for causal language models", "task", "lm");
  if (s.peft) refuse("PEFT's methods beside LoRA are not modelled for TRL's trainers", "task");
  refuse_other_kinds_keys(*s.post_training);
  take_trl(r);
  if (s.post_training->kind == Kind::sft && !s.releases.of(Package::trl).since(1, 7)) {
    r.assume("loss: the model's own, as TRL before 1.7 takes it");
    return s.post_training.reset();
  }
  refuse_routers_loss(r);
  take_reference(r);
  take_lengths(r);
  if (s.post_training->kind == Kind::grpo) take_rollout(r);
}

}  // namespace plimsoll::framework

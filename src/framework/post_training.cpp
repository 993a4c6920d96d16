// Training behind supervised training: TRL's trainers of preferences and rewards over transformers' modules, as Accelerate or DeepSpeed prepares them.
#include "framework/post_training.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "framework/verl.hpp"
#include "model/router_loss.hpp"
#include "plimsoll/error.hpp"
#include "strategy/names.hpp"

namespace plimsoll::framework {
namespace {

using Kind = PostTraining::Kind;
using Reference = PostTraining::Reference;
using Rollout = PostTraining::Rollout;

/// The newest TRL that a program takes whose trainers are subclasses of TRL's (the requirements of LLaMA-Factory 0.9.5, of ms-swift 4.6).
Release newest_for(PostTraining::Program program) {
  switch (program) {
    case PostTraining::Program::llamafactory:
      return Release(0, 24, 0);
    case PostTraining::Program::ms_swift:
      return Release(0, 29, 1);
    default:
      return facts_of(Package::trl).newest;
  }
}

/// TRL where nobody says: the one that was out when the transformers that was said came out, else the newest.
void take_trl(Resolver& r) {
  Strategy& s = r.s;
  if (s.releases.find(Package::trl)) return;
  const Releases::Entry* transformers = s.releases.find(Package::transformers);
  const bool dated = transformers && transformers->origin == Releases::Origin::said && transformers->release.date() > 0;
  const PostTraining::Program program = s.post_training->program;
  const Release newest = newest_for(program);
  Release release = dated ? release_out_on(Package::trl, transformers->release.date()) : newest;
  std::string why = dated ? "of the time of transformers " + transformers->release.text() : "the newest that was read";
  if (program != PostTraining::Program::trl && (!dated || newest < release)) {
    release = newest;
    why = fmt::format("the newest that {} takes", strategy::name_in(strategy::trainer_program_names(), program));
  }
  s.releases.put(Package::trl, release, Releases::Origin::assumed, why);
  r.assume("trl: " + release.text() + " (" + why + ")");
}

std::string_view word_of(Kind kind) { return strategy::name_in(strategy::post_training_names(), kind); }

/// From which release on a trainer of TRL casts the adapters over quantised weights to bf16 (its __init__), among 0.25, 0.26, 0.27, 0.29 and
/// 1.9; null: those of ORPO and CPO do not.
std::optional<Release> casts_adapters_since(Kind kind) {
  switch (kind) {
    case Kind::sft:
    case Kind::reward:
    case Kind::grpo:
      return Release(0, 26);
    case Kind::rloo:
      return Release(0, 27);
    case Kind::dpo:
      return Release(0, 29);
    case Kind::kto:
      return Release(1, 9);
    default:
      return std::nullopt;
  }
}

/// GKDConfig's beta is 0.5; a teacher of other words is none (since 1.16 TRL says so, before its loss fails).
void take_teacher(Resolver& r) {
  PostTraining& post = *r.s.post_training;
  const bool of_trl = post.program == PostTraining::Program::trl;
  if (!of_trl && post.program != PostTraining::Program::ms_swift) refuse("GKD is modelled as TRL and ms-swift do it", "trainer", "trl or ms-swift");
  if (!of_trl && r.s.micro_batch == 1)
    refuse("ms-swift's GKD of one sequence, of which it picks the answer's tokens by a mask, is not modelled", "micro_batch", "2 or more");
  if (of_trl && r.s.releases.of(Package::trl) < Release(1, 0)) refuse("GKD of TRL before 1.0 is not modelled", "releases.trl", "1.0 or later");
  if (is_fsdp(r.s.data_parallel) && !of_trl) refuse("a teacher under FSDP is not modelled", "data_parallel", "ddp, zero2 or zero3");
  if (is_fsdp(r.s.data_parallel))  // accelerator.prepare_model(teacher, evaluation_mode=True) moves it nowhere
    fail("TRL's GKDTrainer leaves the teacher on the host under FSDP, and PyTorch stops in the first step", "data_parallel", "ddp, zero2 or zero3");
  if (!r.model.teacher) fail("GKD learns from another model", "teacher", "a shipped model's name, or a config.json");
  if (post.reference != Reference::automatic && post.reference != Reference::teacher)
    fail("GKD compares with its teacher", "reference", "leave it out");
  if (r.model.teacher->task != Model::Task::causal_lm) refuse("a teacher that is no causal language model is not modelled", "teacher");
  if (r.model.teacher->vocab_size != r.model.vocab_size)
    fail(fmt::format("a teacher of {} words cannot be compared with a model of {}", r.model.teacher->vocab_size, r.model.vocab_size), "teacher",
         "a model of the same vocab_size");
  post.reference = Reference::teacher;
  if (post.divergence == PostTraining::Divergence::automatic) {
    post.divergence = PostTraining::Divergence::mixture;
    r.assume("divergence: mixture (GKDConfig's beta of 0.5)");
  }
}

/// GRPOConfig's beta is 0 since 0.18: no KL term, no reference.
void take_reference(Resolver& r) {
  PostTraining& post = *r.s.post_training;
  Reference& reference = post.reference;
  const bool of_trl = post.program == PostTraining::Program::trl;  // ms-swift's beta is 0.04
  if (post.kind == Kind::gkd) return take_teacher(r);
  const bool needs_none = post.kind == Kind::grpo && of_trl && r.s.releases.of(Package::trl).since(0, 18);
  if (!post.compares()) {
    if (reference != Reference::automatic && reference != Reference::none)
      fail(fmt::format("{} compares with nothing", post.kind == Kind::sft ? "supervised fine-tuning" : word_of(post.kind)), "reference", "leave it out");
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
  if (reference == Reference::none && !post.writes_answers())
    fail(fmt::format("{} compares with a reference", word_of(post.kind)), "reference", "model, adapter-off or precomputed");
  if (reference == Reference::precomputed && post.writes_answers())
    fail("answers that are written in training have no numbers from before it", "reference", "model, adapter-off or none");
}

void take_lengths(Resolver& r) {
  Strategy& s = r.s;
  const Kind kind = s.post_training->kind;
  std::int64_t& prompt = s.post_training->prompt_len;
  if (kind == Kind::reward && prompt > 0) fail("a reward model scores whole texts: no part of them is a prompt", "prompt_len", "leave it out");
  if (prompt == 0) {
    prompt = 1;  // which no label stands for
    if (kind != Kind::sft && kind != Kind::reward)
      r.assume(fmt::format("prompt_len: 1 of {} tokens (a longer prompt leaves fewer tokens to score)", s.seq_len));
  }
  if (prompt >= s.seq_len)
    fail(fmt::format("a prompt of {} tokens leaves no answer of {} tokens", prompt, s.seq_len), "prompt_len",
         "less than seq_len, which counts the prompt and an answer");
}

/// GRPOConfig's vllm_mode is "colocate" since 1.0, and its share of the device 0.3, ms-swift's 0.9.
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
    const bool swift = post.program == PostTraining::Program::ms_swift;
    post.engine_share = swift ? 0.9 : 0.3;
    r.assume(fmt::format("engine_share: {} ({}'s vllm_gpu_memory_utilization)", post.engine_share, swift ? "ms-swift" : "TRL"));
  }
  if (post.kind == Kind::rloo) {
    if (post.old_log_probs && !*post.old_log_probs) fail("RLOO scores every answer before it learns of it", "old_log_probs", "leave it out");
    post.old_log_probs = true;
  }
  if (!post.old_log_probs) {
    post.old_log_probs = true;
    r.assume("old_log_probs: true (TRL scores what vLLM wrote once more, for its importance sampling)");
  }
}

void refuse_others_teachers(const PostTraining& post) {
  if (post.kind == Kind::gkd) return;
  if (!post.teacher.empty()) fail("a teacher is GKD's", "teacher", "task gkd, or leave it out");
  if (post.reference == Reference::teacher) fail("a teacher is GKD's", "reference", "model, adapter-off, precomputed or none");
  if (post.divergence != PostTraining::Divergence::automatic)
    fail("a divergence of two models' words is GKD's", "divergence", "task gkd, or leave it out");
}

void refuse_other_kinds_keys(const PostTraining& post) {
  if (post.supervised_term && post.kind != Kind::cpo)
    fail("whether the better answer's next token is learnt as well is a choice of CPO's", "supervised_term", "leave it out");
  if (post.kl_batch && post.kind != Kind::kto) fail("answers behind others' prompts are KTO's", "kl_batch", "leave it out");
  if (post.writes_answers()) return;
  if (post.rollout != Rollout::automatic || post.engine_share > 0 || post.engine_sleeps || post.old_log_probs)
    fail("no answers are written: an engine is GRPO's and RLOO's", "task", "grpo or rloo, or leave rollout and engine's keys out");
}

/// disable_dropout of the configurations: of those that write answers it is false.
void take_dropout(PostTraining& post) {
  if (post.kind == Kind::sft && post.disable_dropout.value_or(false))
    fail("SFTTrainer switches no dropout off", "disable_dropout", "leave it out");
  if (!post.disable_dropout) post.disable_dropout = post.kind != Kind::sft && !post.writes_answers();
}

/// What KTO's and CPO's configurations take by themselves.
void take_terms(Resolver& r) {
  PostTraining& post = *r.s.post_training;
  if (post.kind == Kind::cpo && !post.supervised_term && post.program != PostTraining::Program::llamafactory) {
    post.supervised_term = true;
    r.assume("supervised_term: true (CPOConfig's cpo_alpha of 1)");
  }
  if (post.kind != Kind::kto) return;
  if (!post.kl_batch) {
    post.kl_batch = true;
    r.assume("kl_batch: true (KTOConfig's loss_type kto)");
  }
  if (!*post.kl_batch && post.program == PostTraining::Program::llamafactory)
    fail("LLaMA-Factory's KTO has its KL term", "kl_batch", "leave it out");
  if (*post.kl_batch && r.s.micro_batch < 2 && post.program == PostTraining::Program::trl)
    fail("KTO's KL term is of answers behind each other's prompts, and TRL refuses a batch of one", "micro_batch", "2 or more, or kl_batch false");
}

/// Since 1.8 the trainers ask a mixture for its routers' logits and add their auxiliary loss, unless router_aux_loss_coef, by itself the
/// config's, is 0; RewardTrainer does not, ORPO and CPO only where the model's config has it.
void take_router_loss(Resolver& r) {
  PostTraining& post = *r.s.post_training;
  const Kind kind = post.kind;
  const bool balances =
      r.model.has_experts() && r.s.releases.of(Package::trl).since(1, 7) && kind != Kind::reward && kind != Kind::orpo && kind != Kind::cpo;
  if (!balances) {
    if (post.router_loss.value_or(false))
      fail("only TRL's trainers of mixtures since 1.8 add the routers' auxiliary loss, those of rewards, ORPO and CPO not", "router_loss",
           "leave it out");
    return;
  }
  if (!post.router_loss) post.router_loss = model::has_router_loss(r.model);
  if (*post.router_loss && (post.writes_answers() || r.model.source))
    refuse(std::string("the routers' auxiliary loss that TRL since 1.8 adds of a mixture is not modelled for ") +
               (r.model.source ? "a model that is read from code" : "trainers that write answers"),
           "router_loss", "false (router_aux_loss_coef 0), or releases.trl 1.6 or earlier, which has none");
}

/// lora_dpo_distributed.py and lora_dpo_single_device.py: the reference is the model with its adapters off. That of full_dpo_distributed.py is
/// a second model.
void complete_pairs_of_torchtune(Resolver& r) {
  Strategy& s = r.s;
  PostTraining& post = *s.post_training;
  if (post.kind != Kind::dpo)
    refuse(fmt::format("of torchtune's trainers of preferences and rewards DPO with adapters is modelled, not {}", word_of(post.kind)), "task", "dpo");
  if (!s.lora) refuse("torchtune's DPO of all weights, whose reference is a second model, is not modelled", "task", "adapters: --lora.r");
  if (post.program != PostTraining::Program::trl) fail("torchtune's recipes have a loss of their own", "trainer", "leave it out");
  if (post.reference != Reference::automatic && post.reference != Reference::adapter_off)
    refuse("torchtune's DPO with adapters compares with the model whose adapters are off", "reference", "adapter-off");
  refuse_other_kinds_keys(post);
  post.reference = Reference::adapter_off;
  post.prompt_len = std::max<std::int64_t>(1, post.prompt_len);
}

}  // namespace

void complete_adapters_of_trl(Resolver& r) {
  Strategy& s = r.s;
  if (is_run_by_verl(s)) return complete_adapters_of_verl(r);
  if (!s.lora || s.lora->adapter_dtype || !s.post_training || s.post_training->program != PostTraining::Program::trl) return;
  const std::optional<Release> since = casts_adapters_since(s.post_training->kind);
  if (!since) return;
  take_trl(r);
  const Release trl = s.releases.of(Package::trl);
  if (s.base_weights != BaseWeights::as_trained && !(trl < *since)) {
    s.lora->adapter_dtype = DType::bf16;
    r.assume("lora.adapter_dtype: bf16 (TRL casts those over quantised weights)");
  }
  // autocast_adapter_dtype False, behind zero.Init: PEFT puts them into the base layer's type.
  if (s.base_weights == BaseWeights::as_trained && s.data_parallel == DataParallel::zero3 && s.param_dtype && trl.since(1, 9)) {
    s.lora->adapter_dtype = s.param_dtype;
    r.assume(fmt::format("lora.adapter_dtype: {} (the weights', as TRL asks PEFT under ZeRO-3)", name_of(*s.param_dtype)));
  }
}

void complete_post_training(Resolver& r) {
  Strategy& s = r.s;
  if (!s.post_training) return;
  if (s.post_training->kind == Kind::automatic)
    fail("reference, teacher, prompt_len, rollout and the engine's keys are of TRL's trainers, and no such task is said", "task", "dpo, kto, grpo …");
  refuse_others_teachers(*s.post_training);
  if (is_run_by_verl(s)) return complete_verl(r);
  if (s.framework == "torchtune") return complete_pairs_of_torchtune(r);
  if (s.framework != "accelerate" && s.framework != "deepspeed")
    refuse(fmt::format("{} is modelled as TRL does it, which {} does not run", word_of(s.post_training->kind), s.framework), "task",
           "framework accelerate or deepspeed");
  const bool scores = s.post_training->kind == Kind::reward && r.model.task == Model::Task::classification;
  if (r.model.task != Model::Task::causal_lm && !scores) refuse("TRL's trainers are modelled for causal language models", "task", "lm");
  if (s.peft) refuse("PEFT's methods beside LoRA are not modelled for TRL's trainers", "task");
  refuse_other_kinds_keys(*s.post_training);
  take_trl(r);
  if (s.post_training->kind == Kind::sft && !s.releases.of(Package::trl).since(1, 7)) {
    r.assume("loss: the model's own, as TRL before 1.7 takes it");
    return s.post_training.reset();
  }
  take_router_loss(r);
  take_reference(r);
  take_lengths(r);
  take_terms(r);
  take_dropout(*s.post_training);
  if (s.post_training->writes_answers()) take_rollout(r);
}

}  // namespace plimsoll::framework

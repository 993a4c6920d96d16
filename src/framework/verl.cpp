// verl's hybrid engine with FSDP actors: what its workers and their configuration take by themselves (verl/workers/config,
// verl/trainer/config/_generated_ppo_trainer.yaml of 0.9.1).
#include "framework/verl.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "plimsoll/error.hpp"

namespace plimsoll::framework {
namespace {

using Kind = PostTraining::Kind;
using Reference = PostTraining::Reference;
using Workers = PostTraining::Workers;

/// Weights of their own type, gathered and autocast to bf16, gradients reduced in fp32.
void take_precision(Resolver& r) {
  Strategy& s = r.s;
  if (s.precision == Precision::automatic) s.precision = Precision::bf16;
  if (s.precision != Precision::bf16 && s.precision != Precision::fsdp_mixed_bf16)
    refuse("verl computes in bf16 under FSDP's mixed precision; another is not modelled", "precision", "bf16, with param_dtype fp32 or bf16");
  s.precision = Precision::fsdp_mixed_bf16;
  if (!s.param_dtype) {
    s.param_dtype = DType::fp32;
    r.assume("param_dtype: fp32 (verl's model_dtype)");
  }
  if (!s.reduce_dtype) s.reduce_dtype = DType::fp32;
}

void take_kernels(Resolver& r) {
  Strategy& s = r.s;
  if (s.attention == AttentionKernel::automatic) {
    s.attention = AttentionKernel::flash;
    r.assume("attention: flash (verl loads models with flash_attention_2)");
  }
  if (s.recompute.kind == Recompute::Kind::automatic) {
    s.recompute.kind = Recompute::Kind::full;
    r.assume("recompute: full (verl's enable_gradient_checkpointing)");
  }
  if (!s.recompute.reentrant) s.recompute.reentrant = false;
  if (!s.clip_grad_norm) {
    s.clip_grad_norm = true;
    r.assume("clip_grad_norm: true (verl's clip_grad)");
  }
}

void take_sharding(Resolver& r) {
  Strategy& s = r.s;
  if (s.data_parallel == DataParallel::automatic || s.data_parallel == DataParallel::fsdp) {
    s.data_parallel = DataParallel::fsdp1;
    r.assume("data_parallel: fsdp1 (verl's actor.strategy fsdp)");
  }
  if (s.data_parallel != DataParallel::fsdp1 && s.data_parallel != DataParallel::fsdp2)
    refuse("verl's actors are modelled under FSDP", "data_parallel", "fsdp1 or fsdp2");
  if (s.data_parallel == DataParallel::fsdp1 && !s.fsdp.use_orig_params) s.fsdp.use_orig_params = false;
  if (s.data_parallel == DataParallel::fsdp2 && s.fsdp.reshard == FsdpOptions::Reshard::automatic) s.fsdp.reshard = FsdpOptions::Reshard::always;
}

/// An update's answers fill rows of so many tokens: of full length, dealt evenly to as few rows as hold them
/// (rearrange_micro_batches), whose largest may hold more than the bound; shorter ones fill a row up to it.
std::int64_t tokens_of_row(std::int64_t answers, std::int64_t length, std::int64_t bound) {
  const std::int64_t all = answers * length, rows = ceil_div(all, bound);
  return std::max(ceil_div(answers, rows) * length, std::min(bound, all));
}

void take_rows(Resolver& r) {
  Strategy& s = r.s;
  Workers& w = s.post_training->workers;
  if (w.row_tokens == 0) return;
  if (w.answers == 0) fail("rows of tokens hold answers, and how many an update has is not said", "row_tokens", "give answers too");
  if (s.seq_len == 0) fail("rows of tokens hold answers, and how long these are is not said", "row_tokens", "give seq_len too");
  for (const std::int64_t bound : {w.row_tokens, w.score_tokens, w.reference_tokens})
    if (bound > 0 && bound < s.seq_len)
      fail(fmt::format("a micro-batch of {} tokens does not hold a sequence of {}", bound, s.seq_len), "row_tokens", "as many as seq_len at least");
  for (std::int64_t* bound : {&w.row_tokens, &w.score_tokens, &w.reference_tokens})
    if (*bound > 0) *bound = tokens_of_row(w.answers, s.seq_len, *bound);
  if (s.micro_batch == 0) s.micro_batch = ceil_div(w.row_tokens, s.seq_len);
  const std::int64_t all = w.answers * s.seq_len, nearest = (all + w.row_tokens / 2) / w.row_tokens;
  if (s.grad_accum == 0) s.grad_accum = std::max<std::int64_t>(all > w.row_tokens ? 2 : 1, nearest);
}

void take_reference(Resolver& r) {
  PostTraining& post = *r.s.post_training;
  if (post.reference == Reference::automatic) {
    post.reference = Reference::none;
    r.assume("reference: none (verl's use_kl_loss is false)");
  }
  if (post.reference == Reference::precomputed) fail("verl's answers have no numbers from before training", "reference", "model, adapter-off or none");
  if (post.reference == Reference::adapter_off && !r.s.lora) fail("only a model with adapters can switch them off", "reference", "model, or give --lora.r");
  if (post.reference == Reference::model && r.s.lora) fail("verl takes its actor without adapters as the reference", "reference", "adapter-off");
}

void take_engine(Resolver& r) {
  PostTraining& post = *r.s.post_training;
  if (post.rollout == PostTraining::Rollout::automatic) {
    post.rollout = PostTraining::Rollout::colocated;
    r.assume("rollout: colocated (verl's hybrid engine)");
  }
  const bool colocated = post.rollout == PostTraining::Rollout::colocated;
  if (!colocated && (post.engine_share > 0 || post.engine_sleeps))
    fail("an engine on devices of its own takes nothing of the trainer's", post.engine_sleeps ? "engine_sleeps" : "engine_share", "rollout colocated");
  const int within = std::min(r.gpus_per_node, static_cast<int>(r.gpus));
  const std::int64_t tp = post.workers.engine_tp;
  if (colocated && (r.gpus % tp != 0 || (tp > within && tp % within != 0)))
    fail(fmt::format("engines of {} devices do not divide {} of {} a node", tp, r.gpus, within), "engine_tp", "a divisor (rollout.tensor_model_parallel_size)");
  if (colocated && post.engine_share <= 0) {
    post.engine_share = 0.5;
    r.assume("engine_share: 0.5 (verl's gpu_memory_utilization)");
  }
  if (post.old_log_probs == false) refuse("answers that the actor does not score again (bypass_mode) are not modelled", "old_log_probs", "true");
  post.old_log_probs = true;
}

}  // namespace

bool is_run_by_verl(const Strategy& s) { return s.post_training && s.post_training->by_verl(); }

void begin_verl(Resolver& r) {
  Strategy& s = r.s;
  if (!is_run_by_verl(s)) return;
  if (s.post_training->kind != Kind::grpo)
    refuse("of verl's algorithms those without a critic are modelled", "task", "grpo, which stands for all of them");
  if (!s.framework.empty() && entry_of(s.framework).profile.name != "transformers")
    refuse(fmt::format("verl's workers run transformers' modules, not {}", s.framework), "framework", "transformers");
  s.framework = "transformers";
  if (!s.releases.find(Package::verl)) {
    const Release newest = facts_of(Package::verl).newest;
    s.releases.put(Package::verl, newest, Releases::Origin::assumed, "the newest that was read");
    r.assume("verl: " + newest.text());
  }
  take_sharding(r);
  take_precision(r);
  take_kernels(r);
  take_rows(r);
}

void complete_adapters_of_verl(Resolver& r) {
  Strategy& s = r.s;
  if (!s.lora || s.lora->adapter_dtype) return;
  s.lora->adapter_dtype = s.param_dtype;
  r.assume("lora.adapter_dtype: " + std::string(name_of(*s.param_dtype)) + " (the weights', as verl casts them)");
}

void complete_verl(Resolver& r) {
  Strategy& s = r.s;
  Workers& w = s.post_training->workers;
  if (r.model.task != Model::Task::causal_lm) refuse("verl's actors are modelled for causal language models", "task", "grpo of such a model");
  if (s.peft) refuse("PEFT's methods beside LoRA are not modelled under verl", "task");
  if (s.base_weights != BaseWeights::as_trained) refuse("quantised weights are not modelled under verl", "base_weights");
  take_reference(r);
  std::int64_t& prompt = s.post_training->prompt_len;
  if (prompt == 0) {
    prompt = 1;
    r.assume(fmt::format("prompt_len: 1 of {} tokens", s.seq_len));
  }
  if (prompt >= s.seq_len)
    fail(fmt::format("a prompt of {} tokens leaves no answer of {} tokens", prompt, s.seq_len), "prompt_len", "less than seq_len, which counts the prompt and an answer");
  take_engine(r);
  if (w.answers == 0) w.answers = s.micro_batch * s.grad_accum;
  if (w.row_tokens == 0) w.row_tokens = s.micro_batch * s.seq_len;
  if (w.score_tokens == 0) w.score_tokens = w.row_tokens;
  if (w.reference_tokens == 0) w.reference_tokens = w.score_tokens;
}

}  // namespace plimsoll::framework

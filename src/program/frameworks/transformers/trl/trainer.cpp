#include "program/frameworks/transformers/trl/trainer.hpp"

#include <utility>

#include "plimsoll/error.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/trl_release.hpp"

namespace plimsoll::program {

using Kind = PostTraining::Kind;
using Reference = PostTraining::Reference;

namespace {

TrlRelease release_of(const Strategy& strategy) { return TrlRelease(strategy.releases.of(Package::trl)); }

/// Whether a subclass of TRL's trainer brings a forward of its own; ms-swift's others call TRL's, but for the one that writes answers,
/// whose loss alone is near to TRL's.
bool has_own_forward(const PostTraining& post) {
  using Program = PostTraining::Program;
  if (post.program == Program::ms_swift) return post.kind == Kind::dpo || post.kind == Kind::kto;
  return post.program == Program::llamafactory;
}

/// Trainers whose forward is patched with a fused head, where the release has one; the others take whole logits or scores in all.
bool may_fuse_head(Kind kind) { return kind != Kind::reward && kind != Kind::orpo && kind != Kind::cpo && kind != Kind::gkd; }

RunOptions::Loss answer_of(const PostTraining& post, const TrlRelease& release) {
  const Kind kind = post.kind;
  const bool swift_writes = post.program == PostTraining::Program::ms_swift && post.writes_answers();
  if (has_own_forward(post) || swift_writes) return RunOptions::Loss::logits;
  if (kind == Kind::reward) return RunOptions::Loss::sequence_scores;
  return may_fuse_head(kind) && release.fuses_head() ? RunOptions::Loss::token_scores : RunOptions::Loss::logits;
}

void refuse_what_was_not_read(const Strategy& strategy, const TrlRelease& release) {
  const Kind kind = strategy.post_training->kind;
  if (has_own_forward(*strategy.post_training)) {
    if (kind == Kind::dpo || kind == Kind::kto || kind == Kind::orpo || kind == Kind::cpo) return;
    refuse("this trainer of LLaMA-Factory's is not modelled", "task", "dpo, kto, orpo or cpo");
  }
  if (strategy.post_training->program == PostTraining::Program::ms_swift && (kind == Kind::grpo || kind == Kind::gkd)) return;
  if (strategy.post_training->program != PostTraining::Program::trl && strategy.post_training->writes_answers())
    refuse("of ms-swift's trainers that write answers GRPO's is modelled, not this", "task", "grpo");
  if (release.scores_logits_by_kernel() && may_fuse_head(kind))
    refuse("TRL 1.14's kernel over whole logits is not modelled", "releases.trl", "1.13, or 1.15 and later, which fuse the head");
  if (kind == Kind::sft && !release.fuses_head())
    refuse("TRL's supervised loss by chunks of tokens (1.7 to 1.14) is not modelled", "releases.trl", "1.6, or 1.15 and later");
  if (kind == Kind::grpo && !release.divides_logits())
    refuse("GRPO of TRL before 0.16 is not modelled", "releases.trl", "0.16 or later");
  if (kind == Kind::rloo && !release.has_rloo_beside_grpo())
    refuse("RLOO of TRL before 0.22, a loop of its own, is not modelled", "releases.trl", "0.22 or later");
}

}  // namespace

/// verl's workers: whole logits of rows without padding.
static RunOptions verl_options(const Strategy& strategy, RunOptions options) {
  if (options.loss != RunOptions::Loss::cross_entropy) refuse("fused losses under verl are not modelled", "loss", "leave it out: the loss is verl's own");
  if (strategy.compile != Strategy::Compile::no) refuse("torch.compile of the model under verl is not modelled", "compile", "no");
  if (strategy.offload.activations) refuse("activation offload under verl is not modelled", "offload");
  if (strategy.offload.params || strategy.offload.optimizer)
    refuse("an actor under FSDP's CPU offload is not modelled (offload_policy)", "offload", "params_rest and states_rest, which bring both back for the update");
  options.loss = RunOptions::Loss::logits;
  options.packed_length = strategy.seq_len;
  return options;
}

RunOptions post_training_options(const Strategy& strategy, RunOptions options) {
  if (strategy.post_training->by_verl()) return verl_options(strategy, std::move(options));
  const TrlRelease release = release_of(strategy);
  const Kind kind = strategy.post_training->kind;
  refuse_what_was_not_read(strategy, release);
  if (options.loss != RunOptions::Loss::cross_entropy)
    refuse("Liger's losses of TRL's trainers are not modelled", "loss", "leave it out: the loss is the trainer's own");
  if (strategy.compile != Strategy::Compile::no) refuse("torch.compile under TRL's trainers is not modelled", "compile", "no");
  if (strategy.offload.activations) refuse("activation offload under TRL's trainers is not modelled", "offload");
  options.loss = answer_of(*strategy.post_training, release);
  options.scored_tokens = strategy.sequences_per_sample() * strategy.micro_batch * answer_length(strategy);
  options.metrics = {.entropy = true, .mean_logits = kind == Kind::dpo || kind == Kind::kto, .is_top1 = kind == Kind::dpo || kind == Kind::sft};
  const bool of_swift = strategy.post_training->program == PostTraining::Program::ms_swift;
  const bool swift = of_swift && (has_own_forward(*strategy.post_training) || kind == Kind::gkd);
  if (strategy.post_training->writes_answers() || swift) options.logits_kept = answer_length(strategy) + 1;  // logits_to_keep
  return options;
}

Batch post_training_batch(const Strategy& strategy, Tape& tape) {
  if (strategy.post_training->by_verl()) return {};  // every micro-batch comes onto the device when it is its turn
  const auto numbers = [&](std::int64_t rows, std::int64_t columns) { return tape.empty({rows, columns}, DType::int64, Category::input); };
  Batch batch;
  if (!strategy.post_training->writes_answers()) {
    const Kind kind = strategy.post_training->kind;
    const bool apart = ((kind == Kind::orpo || kind == Kind::cpo) && !has_own_forward(*strategy.post_training)) || (kind == Kind::reward && !release_of(strategy).concatenates_pairs());
    const std::int64_t rows = (apart ? 1 : strategy.sequences_per_sample()) * strategy.micro_batch;
    batch.input_ids = numbers(rows, strategy.seq_len);
    batch.conditions = {numbers(rows, strategy.seq_len), numbers(rows, strategy.seq_len)};  // attention_mask; labels or completion_mask
    const bool twice = apart || strategy.post_training->kl_batch.value_or(false);  // of the rejected texts, of answers behind others' prompts
    for (int i = 0; twice && i < 3; ++i) batch.conditions.push_back(numbers(rows, strategy.seq_len));
    return batch;
  }
  const std::int64_t rows = strategy.micro_batch * strategy.grad_accum, prompt = strategy.post_training->prompt_len, answer = answer_length(strategy);
  batch.input_ids = numbers(rows, prompt);
  batch.conditions = {numbers(rows, prompt), numbers(rows, answer), numbers(rows, answer), tape.empty({rows}, DType::fp32, Category::input)};
  return batch;
}

bool keeps_reference_model(const Strategy& strategy) { return strategy.post_training && strategy.post_training->keeps_frozen_model(); }

const Model& frozen_model(const Model& model, const Strategy& strategy) {
  return strategy.post_training->reference == Reference::teacher ? *model.teacher : model;
}

Strategy strategy_of_frozen(const Strategy& strategy) {
  Strategy frozen = strategy;
  frozen.lora.reset();
  frozen.base_weights = BaseWeights::as_trained;  // a teacher's, which is loaded by its name alone
  return frozen;
}

std::unique_ptr<Module> reference_modules(const Model& model, const Strategy& strategy, Tape& tape) {
  Strategy frozen = strategy_of_frozen(strategy);
  // LLaMA-Factory's load_model upcasts what is trained and leaves a model of reference in the type it computes in.
  const std::optional<DType> low = hf_autocast(strategy);
  if (strategy.post_training->program == PostTraining::Program::llamafactory && low) frozen.param_dtype = low;
  return hf_modules(frozen_model(model, strategy), frozen, tape);
}

std::unique_ptr<Network> post_training_network(const Model& model, const Strategy& strategy, Module& root, std::unique_ptr<Network> policy,
                                               ReferenceModel reference, Tape& tape) {
  TrlNetworks networks{std::move(policy), nullptr, std::move(reference)};
  const Reference says = strategy.post_training->reference;
  const bool by_itself = strategy.post_training->by_verl() && says == Reference::adapter_off;  // the policy's own network, scored as it is
  if (!by_itself && (says == Reference::adapter_off || strategy.post_training->keeps_frozen_model())) {
    Strategy forward_only = strategy;
    forward_only.recompute.kind = Recompute::Kind::none;  // disable_gradient_checkpointing
    if (says != Reference::adapter_off) forward_only.liger_kernel = false;  // whose patches the Trainer gives the policy's modules alone
    const bool caches = says == Reference::teacher && strategy.post_training->program == PostTraining::Program::trl;  // ms-swift's models have use_cache off
    if (caches) networks.cache = std::make_shared<std::vector<Tensor>>();
    networks.reference =
        hf_reference_network(frozen_model(model, strategy), forward_only, networks.model.root ? *networks.model.root : root, networks.cache, tape);
  }
  if (strategy.post_training->by_verl()) return make_verl(strategy, std::move(networks), tape);
  if (has_own_forward(*strategy.post_training)) return make_own_forward(strategy, std::move(networks), tape);
  switch (strategy.post_training->kind) {
    case Kind::dpo:
      return make_dpo(strategy, std::move(networks), tape);
    case Kind::reward:
      return make_reward(strategy, std::move(networks), tape);
    case Kind::kto:
      return make_kto(strategy, std::move(networks), tape);
    case Kind::gkd:
      return make_gkd(strategy, std::move(networks), tape);
    case Kind::orpo:
    case Kind::cpo:
      return make_pairs(strategy, std::move(networks), tape);
    case Kind::grpo:
    case Kind::rloo:
      return make_grpo(strategy, std::move(networks), tape);
    default:
      return make_sft(std::move(networks), tape);
  }
}

Tensor with_auxiliary_loss(Network& policy, Tensor loss) {
  const Tensor auxiliary = policy.take_auxiliary_loss();
  return auxiliary ? add(loss, multiply_scalar(auxiliary)) : loss;
}

std::optional<DType> scoring_autocast(const Strategy& strategy) {
  const bool by_trl = strategy.post_training->program == PostTraining::Program::trl && release_of(strategy).scores_under_autocast();
  if (by_trl && strategy.precision == Precision::fsdp_mixed_bf16) return DType::bf16;
  if (by_trl && strategy.precision == Precision::fsdp_mixed_fp16) return DType::fp16;
  return hf_autocast(strategy);
}

Tensor gathered_from_ranks(const Tensor& x, const Strategy& strategy, Tape& tape) {
  if (strategy.gpus <= 1) return x;
  const Tensor own = x.sizes().rank() == 0 ? clone(x) : x;
  Tensor all = tape.empty({strategy.gpus * own.elements()}, own.dtype(), Category::communication_buffer);
  tape.collective({.kind = CollectiveKind::all_gather, .group = Group::world, .bytes = all.bytes(), .type = all.dtype()}, tape.stream);
  return view(all, own.sizes().rank() < 2 ? Dims{-1} : Dims{-1, own.size(1)});
}

Tensor answer_without_graph(Network& network, const Strategy& strategy, const Batch& batch, bool adapters_off, Tape& tape) {
  const GradMode no_grad(tape, false);
  const bool before = std::exchange(tape.adapters_off, adapters_off);
  Tensor output;
  {
    const std::optional<DType> type = scoring_autocast(strategy);
    const AutocastScope autocast(tape, type.has_value(), type.value_or(DType::bf16));
    output = network.loss(batch);
  }
  output = network.criterion(std::move(output));
  tape.adapters_off = before;
  return output;
}

}  // namespace plimsoll::program

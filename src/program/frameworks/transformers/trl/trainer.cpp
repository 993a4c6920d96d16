#include "program/frameworks/transformers/trl/trainer.hpp"

#include <utility>

#include "plimsoll/error.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/op.hpp"
#include "program/trl_release.hpp"

namespace plimsoll::program {

using Kind = PostTraining::Kind;
using Reference = PostTraining::Reference;

namespace {

TrlRelease release_of(const Strategy& strategy) { return TrlRelease(strategy.releases.of(Package::trl)); }

}  // namespace

RunOptions post_training_options(const Strategy& strategy, RunOptions options) {
  const TrlRelease release = release_of(strategy);
  const Kind kind = strategy.post_training->kind;
  if (release.scores_logits_by_kernel())
    refuse("TRL 1.14's kernel over whole logits is not modelled", "releases.trl", "1.13, or 1.15 and later, which fuse the head");
  if (kind == Kind::sft && !release.fuses_head())
    refuse("TRL's supervised loss by chunks of tokens (1.7 to 1.14) is not modelled", "releases.trl", "1.6, or 1.15 and later");
  if (kind == Kind::grpo && !release.divides_logits())
    refuse("GRPO of TRL before 0.16 is not modelled", "releases.trl", "0.16 or later");
  if (options.loss != RunOptions::Loss::cross_entropy)
    refuse("Liger's losses of TRL's trainers are not modelled", "loss", "leave it out: the loss is the trainer's own");
  if (strategy.compile != Strategy::Compile::no) refuse("torch.compile under TRL's trainers is not modelled", "compile", "no");
  if (strategy.offload.activations) refuse("activation offload under TRL's trainers is not modelled", "offload");
  options.loss = release.fuses_head() ? RunOptions::Loss::token_scores : RunOptions::Loss::logits;
  options.scored_tokens = strategy.sequences_per_sample() * strategy.micro_batch * answer_length(strategy);
  options.metrics = {.entropy = true, .mean_logits = kind == Kind::dpo, .is_top1 = kind != Kind::grpo};
  if (kind == Kind::grpo) options.logits_kept = answer_length(strategy) + 1;  // logits_to_keep
  return options;
}

Batch post_training_batch(const Strategy& strategy, Tape& tape) {
  const auto numbers = [&](std::int64_t rows, std::int64_t columns) { return tape.empty({rows, columns}, DType::int64, Category::input); };
  Batch batch;
  if (strategy.post_training->kind != Kind::grpo) {
    const std::int64_t rows = strategy.sequences_per_sample() * strategy.micro_batch;
    batch.input_ids = numbers(rows, strategy.seq_len);
    batch.conditions = {numbers(rows, strategy.seq_len), numbers(rows, strategy.seq_len)};  // attention_mask; labels or completion_mask
    return batch;
  }
  const std::int64_t rows = strategy.micro_batch * strategy.grad_accum, prompt = strategy.post_training->prompt_len, answer = answer_length(strategy);
  batch.input_ids = numbers(rows, prompt);
  batch.conditions = {numbers(rows, prompt), numbers(rows, answer), numbers(rows, answer), tape.empty({rows}, DType::fp32, Category::input)};
  return batch;
}

bool keeps_reference_model(const Strategy& strategy) {
  return strategy.post_training && strategy.post_training->reference == Reference::model;
}

std::unique_ptr<Module> reference_modules(const Model& model, const Strategy& strategy, Tape& tape) {
  Strategy frozen = strategy;
  frozen.lora.reset();
  return hf_modules(model, frozen, tape);
}

std::unique_ptr<Network> post_training_network(const Model& model, const Strategy& strategy, Module& root, std::unique_ptr<Network> policy,
                                               ReferenceModel reference, Tape& tape) {
  TrlNetworks networks{std::move(policy), nullptr, std::move(reference)};
  const Reference says = strategy.post_training->reference;
  if (says == Reference::model || says == Reference::adapter_off) {
    Strategy forward_only = strategy;
    forward_only.recompute.kind = Recompute::Kind::none;  // disable_gradient_checkpointing
    networks.reference = hf_reference_network(model, forward_only, networks.model.root ? *networks.model.root : root, tape);
  }
  switch (strategy.post_training->kind) {
    case Kind::dpo:
      return make_dpo(strategy, std::move(networks), tape);
    case Kind::grpo:
      return make_grpo(strategy, std::move(networks), tape);
    default:
      return make_sft(std::move(networks), tape);
  }
}

Tensor answer_without_graph(Network& network, const Strategy& strategy, const Batch& batch, bool adapters_off, Tape& tape) {
  const GradMode no_grad(tape, false);
  const bool before = std::exchange(tape.adapters_off, adapters_off);
  Tensor output;
  {
    const std::optional<DType> type = hf_autocast(strategy);
    const AutocastScope autocast(tape, type.has_value(), type.value_or(DType::bf16));
    output = network.loss(batch);
  }
  output = network.criterion(std::move(output));
  tape.adapters_off = before;
  return output;
}

}  // namespace plimsoll::program

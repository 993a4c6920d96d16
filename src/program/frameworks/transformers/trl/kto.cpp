// KTOTrainer (trl/experimental/kto to 1.6, trl/trainer/kto_trainer.py before 0.26 and since 1.7): answers that are wanted or not, each
// compared with what a reference says of it; the KL term is of the same answers behind each other's prompts, which policy and reference
// score without a graph.
#include <algorithm>
#include <utility>
#include <vector>

#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/routing.hpp"
#include "program/ops/token_scores.hpp"
#include "program/trl_release.hpp"

namespace plimsoll::program {

namespace {

using Reference = PostTraining::Reference;

/// Ids and what of them is an answer.
struct Answers {
  Tensor ids, answered;
};

/// What a model said: the logits that labels stand against (none of a fused head), a number for each answer, and copies of the wanted and
/// unwanted answers' logits where the release makes them.
struct Said {
  Tensor output, logits, answers, wanted, unwanted;
};

class KtoNetwork final : public Network {
 public:
  KtoNetwork(const Strategy& strategy, TrlNetworks networks, Tape& tape)
      : strategy_(strategy), release_(strategy.releases.of(Package::trl)), networks_(std::move(networks)), tape_(tape) {}

  void before_forward(const Batch& batch) override {
    if (has_kl_batch()) kl_ = kl_term(*networks_.policy, kl_answers(batch), false, kl_logits_);
  }

  Tensor loss(const Batch& batch) override {
    batch_ = batch;
    const Answers answers{batch.input_ids, batch.conditions[1]};
    return networks_.policy->loss({.input_ids = answers.ids, .labels = labels_of(answers), .router_mask = batch.conditions[0]});
  }

  Tensor criterion(Tensor output) override {
    output = networks_.policy->criterion(std::move(output));
    tape_.phase(Phase::loss);
    const Answers answers{batch_.input_ids, batch_.conditions[1]};
    const Said policy = said_of(std::move(output), answers);
    kl_logits_.reset();
    Said reference;
    Tensor kl = std::move(kl_), reference_kl;
    if (networks_.reference) {
      const bool adapters_off = strategy_.post_training->reference == Reference::adapter_off;
      Tensor kl_logits;
      if (has_kl_batch()) reference_kl = kl_term(*networks_.reference, kl_answers(batch_), adapters_off, kl_logits);
      Tensor before = answer_without_graph(*networks_.reference, strategy_, {answers.ids, labels_of(answers)}, adapters_off, tape_);
      const GradMode no_grad(tape_, false);
      reference = said_of(std::move(before), answers);
    } else {
      reference.answers = tape_.empty({strategy_.micro_batch}, DType::fp32, Category::input);
    }
    const Tensor ratio = subtract(policy.answers, reference.answers);
    const Tensor loss = with_auxiliary_loss(*networks_.policy, losses_of(ratio));
    if (policy.logits && !release_.copies_answers_logits()) log_metrics(policy.logits);
    batch_ = {};
    return loss;
  }

 private:
  bool has_kl_batch() const { return strategy_.post_training->kl_batch.value_or(true); }

  static Answers kl_answers(const Batch& batch) { return {batch.conditions[2], batch.conditions[4]}; }

  static Tensor labels_of(const Answers& answers) {
    const Tensor prompt = compare(answers.answered, {}, DType::boolean);
    return masked_fill(answers.ids, prompt);
  }

  /// _compute_kl_logps: a pass without a graph; `kept` gets its logits where the caller's variable holds them.
  Tensor kl_term(Network& network, const Answers& answers, bool adapters_off, Tensor& kept) const {
    const Tensor output = answer_without_graph(network, strategy_, {answers.ids, labels_of(answers)}, adapters_off, tape_);
    const GradMode no_grad(tape_, false);
    if (release_.keeps_kl_logits()) kept = output;
    if (release_.fuses_head()) return sum(output, {1}, false);
    return sum(scores_of(shifted_logits(output), answers), {1}, false);
  }

  Tensor shifted_logits(const Tensor& whole) const {
    const Tensor logits = slice(whole, 1, 0, whole.size(1) - 1);
    return release_.copies_shifted_kto_logits() ? contiguous(logits) : logits;
  }

  /// What logits say of the answers' tokens, 0 elsewhere.
  Tensor scores_of(const Tensor& logits, const Answers& answers) const {
    const Tensor ids = slice(answers.ids, 1, 1, answers.ids.size(1));
    const Tensor counted = compare(slice(answers.answered, 1, 1, answers.ids.size(1)), {}, DType::boolean);
    Tensor scores;
    if (release_.selects_log_softmax()) {
      scores = selective_log_softmax(logits, ids);
    } else {
      const Tensor all = log_softmax(logits, logits.dtype());
      scores = squeeze(gather_last(all, unsqueeze(ids, 2)), 2);
    }
    return release_.logs_entropy() ? assign_masked(scores, counted) : multiply(scores, counted);
  }

  Said said_of(Tensor output, const Answers& answers) const {
    Said said;
    if (release_.fuses_head()) {
      said.answers = sum(output, {1}, false);
      said.output = std::move(output);
      return said;
    }
    said.logits = shifted_logits(output);
    said.answers = sum(scores_of(said.logits, answers), {1}, false);
    if (release_.copies_answers_logits()) {
      said.wanted = index_rows(output, rows_of_kind());
      said.unwanted = index_rows(output, rows_of_kind());
      said.logits.reset();
      return said;
    }
    said.output = std::move(output);
    return said;
  }

  /// Every second answer is wanted.
  Tensor rows_of_kind() const { return tape_.empty({std::max<std::int64_t>(1, strategy_.micro_batch / 2)}, DType::int64); }

  static Tensor losses_of(const Tensor& ratio) {
    const Tensor scaled = multiply_scalar(ratio);
    const Tensor likelihood = sigmoid(scaled);
    return mean(add_scalar(negate(likelihood)), std::vector<int>{}, false);
  }

  /// What is logged of whole logits: entropy, the mean logit of either kind of answers.
  void log_metrics(const Tensor& logits) const {
    const GradMode no_grad(tape_, false);
    const Tensor said = logits.detach();
    {
      const Tensor entropy = entropy_of_logits(said);
    }
    const Tensor wanted = selected_along(said, 0, rows_of_kind()), unwanted = selected_along(said, 0, rows_of_kind());
    for (const Tensor& kind : {wanted, unwanted}) {
      const Tensor answered = compare(slice(kind, 2, 0, 1), {}, DType::boolean);
      const Tensor places = nonzero(squeeze(answered, 2), kind.size(0) * answer_length(strategy_));
      const Tensor means = mean(indexed_by(kind, 0, unbind(places, 0)), std::vector<int>{1}, false);
      sum(means, {0}, false);
    }
  }

  const Strategy& strategy_;
  TrlRelease release_;
  TrlNetworks networks_;
  Tape& tape_;
  Batch batch_;
  Tensor kl_, kl_logits_;  ///< what the policy said of answers behind others' prompts
};

}  // namespace

std::unique_ptr<Network> make_kto(const Strategy& strategy, TrlNetworks networks, Tape& tape) {
  return std::make_unique<KtoNetwork>(strategy, std::move(networks), tape);
}

}  // namespace plimsoll::program

// DPOTrainer (trl/trainer/dpo_trainer.py): the policy answers both texts of every pair in one pass, a reference does the same without
// gradients, and the loss compares what the two say.
#include <utility>
#include <vector>

#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/routing.hpp"
#include "program/ops/token_scores.hpp"
#include "program/trl_release.hpp"

namespace plimsoll::program {

namespace {

/// Of both answers of a pair, one number each.
struct Pair {
  Tensor chosen, rejected;
};

Pair halves(const Tensor& both) {
  std::vector<Tensor> parts = chunk(both, 2, 0);
  return {std::move(parts[0]), std::move(parts[1])};
}

/// What forward answered, the logits that labels stand against (if there are any), and what they say of the labels.
struct Scored {
  Tensor output, logits, log_probs;
};

class DpoNetwork final : public Network {
 public:
  DpoNetwork(const Strategy& strategy, TrlNetworks networks, Tape& tape)
      : strategy_(strategy), release_(strategy.releases.of(Package::trl)), networks_(std::move(networks)), tape_(tape) {}

  Tensor loss(const Batch& batch) override {
    batch_ = batch;
    const Tensor& answers = batch.conditions[1];
    {  // labels of what is no answer do not count
      const Tensor prompt = compare(answers, {}, DType::boolean);
      labels_ = masked_fill(batch.input_ids, prompt);
    }
    return networks_.policy->loss({.input_ids = batch.input_ids, .labels = labels_, .router_mask = batch.conditions[0]});
  }

  Tensor criterion(Tensor output) override {
    output = networks_.policy->criterion(std::move(output));
    tape_.phase(Phase::loss);
    const Scored said = scored(output);
    if (!release_.logs_entropy()) output.reset();
    const Pair policy = halves(sum(said.log_probs, {1}, false));
    Scored reference;  // locals of _compute_loss; before 0.29 of a function that it called
    const Pair before = reference_answers(release_.logs_entropy() ? &reference : nullptr);
    const Tensor chosen = subtract(policy.chosen, before.chosen), rejected = subtract(policy.rejected, before.rejected);
    const Tensor difference = subtract(chosen, rejected);
    Tensor losses;
    {
      const Tensor scaled = multiply_scalar(difference);
      const Tensor likelihood = function(kLogSigmoid, scaled);
      losses = negate(likelihood);
    }
    Tensor loss;
    {
      const Tensor mean_loss = mean(losses, std::vector<int>{}, false);
      const Tensor weighted = multiply_scalar(mean_loss);
      loss = with_auxiliary_loss(*networks_.policy, add_scalar(weighted));
    }
    if (release_.logs_entropy() && !release_.fuses_head()) log_metrics(said.logits);
    batch_ = {};
    labels_.reset();
    return loss;
  }

 private:
  /// Of what forward answered, log-probabilities of the answers' tokens, 0 elsewhere.
  Scored scored(const Tensor& output) const {
    if (release_.fuses_head()) return {output, {}, output};
    if (!release_.logs_entropy()) return {{}, {}, rolled_log_probs(output)};
    // since 0.29: logits[:, :-1] against ids[:, 1:]
    Scored said{output, slice(output, 1, 0, output.size(1) - 1), {}};
    if (release_.copies_shifted_logits()) said.logits = contiguous(said.logits);
    const Tensor scores = selective_log_softmax(said.logits, shifted(batch_.input_ids));
    said.log_probs = assign_masked(scores, compare(shifted(batch_.conditions[1]), {}, DType::boolean));
    return said;
  }

  static Tensor shifted(const Tensor& numbers) { return slice(numbers, 1, 1, numbers.size(1)); }

  /// Before: the labels are rolled, or shifted with the logits; the means of each answer's logits are computed as well.
  Tensor rolled_log_probs(const Tensor& whole) const {
    const bool rolls = release_.selects_log_softmax();
    const std::int64_t length = whole.size(1);
    const Tensor logits = rolls ? whole : slice(whole, 1, 0, length - 1);
    const Tensor labels = rolls ? rolled(batch_.input_ids, 1) : clone(slice(batch_.input_ids, 1, 1, length));
    const Tensor counted = compare(rolls ? rolled(batch_.conditions[1], 1) : slice(batch_.conditions[1], 1, 1, length), {}, DType::boolean);
    Tensor scores;
    if (rolls) {
      scores = selective_log_softmax(logits, labels);
    } else {
      const Tensor all = log_softmax(logits, logits.dtype());
      scores = squeeze(gather_last(all, unsqueeze(labels, -1)), -1);
    }
    scores = assign_masked(scores, counted);
    if (rolls) scores = rolled(scores, 1);
    const std::int64_t pairs = logits.size(0) / 2;
    for (const std::int64_t first : {std::int64_t{0}, pairs}) {
      const Tensor part = slice(logits, 0, first, first + pairs), mask = slice(counted, 0, first, first + pairs);
      const Tensor chosen = answered(part, mask);
      mean(chosen, std::vector<int>{}, false);
    }
    return scores;
  }

  /// logits[mask] of one answer of every pair: [tokens, classes].
  Tensor answered(const Tensor& logits, const Tensor& mask) const {
    const Tensor places = nonzero(mask, strategy_.micro_batch * answer_length(strategy_));
    return indexed_by(logits, 0, unbind(places, 0));
  }

  /// What 0.29 to 1.13 log of whole logits: entropy, the mean logit of both answers, how often a token is the likeliest.
  void log_metrics(const Tensor& said) const {
    const GradMode no_grad(tape_, false);
    const Tensor logits = said.detach(), labels = shifted(batch_.input_ids);
    const Tensor counted = compare(shifted(batch_.conditions[1]), {}, DType::boolean);
    const Tensor entropy = entropy_of_logits(logits);
    const std::int64_t pairs = logits.size(0) / 2;
    for (const std::int64_t first : {std::int64_t{0}, pairs}) {
      Tensor means;
      {
        const Tensor part = answered(slice(logits, 0, first, first + pairs), slice(counted, 0, first, first + pairs));
        means = mean(part, std::vector<int>{1}, false);
      }
      sum(means, {0}, false);
    }
    const Tensor likeliest = place_of_extreme(slice(logits, 0, 0, pairs), 2, false);
    compare(likeliest, slice(labels, 0, 0, pairs), DType::boolean);
  }

  /// What the reference says of the same answers, without a graph; `kept` gets what they were read of.
  Pair reference_answers(Scored* kept) const {
    const std::int64_t pairs = strategy_.micro_batch;
    const auto numbers = [&] { return tape_.empty({pairs}, DType::fp32, Category::input); };
    if (!networks_.reference) return {numbers(), numbers()};
    const bool adapters_off = strategy_.post_training->reference == PostTraining::Reference::adapter_off;
    const Tensor output = answer_without_graph(*networks_.reference, strategy_, {batch_.input_ids, labels_}, adapters_off, tape_);
    const GradMode no_grad(tape_, false);
    const Scored said = scored(output);
    if (kept) *kept = said;
    return halves(sum(said.log_probs, {1}, false));
  }

  const Strategy& strategy_;
  TrlRelease release_;
  TrlNetworks networks_;
  Tape& tape_;
  Batch batch_;
  Tensor labels_;
};

}  // namespace

std::unique_ptr<Network> make_dpo(const Strategy& strategy, TrlNetworks networks, Tape& tape) {
  return std::make_unique<DpoNetwork>(strategy, std::move(networks), tape);
}

}  // namespace plimsoll::program

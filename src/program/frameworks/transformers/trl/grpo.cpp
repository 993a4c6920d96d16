// GRPOTrainer and RLOOTrainer (trl/trainer/grpo_trainer.py, rloo_trainer.py): answers that were written before are scored without
// gradients, by the policy as it is and by a reference, then learnt of micro-batch by micro-batch. Whoever wrote them stands elsewhere.
// ms-swift's GRPOTrainer (swift/rlhf_trainers/grpo_trainer.py) divides whole logits in place, logs no entropies unless it is asked to, and
// keeps what was scored piece by piece.
#include <utility>

#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/token_scores.hpp"
#include "program/trl_release.hpp"

namespace plimsoll::program {

namespace {

using Reference = PostTraining::Reference;

class GrpoNetwork final : public Network {
 public:
  GrpoNetwork(const Strategy& strategy, TrlNetworks networks, Tape& tape)
      : strategy_(strategy), release_(strategy.releases.of(Package::trl)), networks_(std::move(networks)), tape_(tape) {}

  /// _generate_and_score_completions, behind the generation: in pieces of a micro-batch.
  void before_step(const Batch& batch) override {
    const PostTraining& post = *strategy_.post_training;
    if (post.engine_sleeps) tape_.empty_cache();  // sync_weights, before it wakes the engine
    tape_.phase(Phase::rollout);
    const PhaseScope scoring(tape_, Phase::scoring);
    const GradMode no_grad(tape_, false);
    const Tensor ids = cat({batch.input_ids, batch.conditions[1]}, 1), mask = cat({batch.conditions[0], batch.conditions[2]}, 1);
    if (learns_of_whole_answers()) return score_whole_answers(ids, mask, batch.conditions[2]);
    if (post.old_log_probs.value_or(false)) score(kept(old_, ids), *networks_.policy, ids, mask, false);
    if (networks_.reference) score(kept(before_, ids), *networks_.reference, ids, mask, post.reference == Reference::adapter_off);
  }

  Tensor loss(const Batch& batch) override {
    const auto own = [&](const Tensor& x) { return slice(x, 0, 0, strategy_.micro_batch); };
    ids_ = cat({own(batch.input_ids), own(batch.conditions[1])}, 1);
    const Tensor mask = cat({own(batch.conditions[0]), own(batch.conditions[2])}, 1);
    answered_ = own(batch.conditions[2]);
    advantages_ = own(batch.conditions[3]);
    return networks_.policy->loss({ids_, labels_of(ids_, mask)});
  }

  Tensor criterion(Tensor output) override {
    output = networks_.policy->criterion(std::move(output));
    tape_.phase(Phase::loss);
    const Tensor log_probs = log_probs_of(std::move(output), ids_, true);
    const Tensor loss = learns_of_whole_answers() ? answers_loss(log_probs) : policy_loss(log_probs);
    for (Tensor* each : {&ids_, &answered_, &advantages_}) each->reset();
    return loss;
  }

 private:
  /// Only the answers' tokens count.
  Tensor labels_of(const Tensor& ids, const Tensor& mask) const {
    const Tensor padding = compare(mask, {}, DType::boolean);
    const Tensor labels = masked_fill(ids, padding);
    return assign_part(labels, slice(labels, 1, 0, strategy_.post_training->prompt_len), {});
  }

  /// Numbers of a step's answers, which stay until the next step's take their place.
  const Tensor& kept(Tensor& numbers, const Tensor& ids) const {
    if (!numbers) numbers = tape_.empty({ids.size(0), answer_length(strategy_)}, DType::fp32, Category::input);
    return numbers;
  }

  /// _get_per_token_logps_and_entropies of a whole step's answers, without a graph.
  void score(const Tensor& numbers, Network& network, const Tensor& ids, const Tensor& mask, bool adapters_off) const {
    Tensor output;  // a Python variable: it lives until the next piece's is there
    for (std::int64_t first = 0; first < ids.size(0); first += strategy_.micro_batch) {
      const std::int64_t end = first + strategy_.micro_batch;
      const Tensor piece = slice(ids, 0, first, end);
      const Tensor labels = labels_of(piece, slice(mask, 0, first, end));
      output = answer_without_graph(network, strategy_, {piece, labels}, adapters_off, tape_);
      const GradMode no_grad(tape_, false);
      copy_into(slice(numbers, 0, first, end), log_probs_of(output, piece, false));
    }
  }

  /// Of what forward answered, log-probabilities of the answers' tokens [sequences, tokens]; with `trained`, entropies are logged too.
  Tensor log_probs_of(Tensor output, const Tensor& ids, bool trained) const {
    const std::int64_t answer = answer_length(strategy_);
    if (!is_swift() && release_.fuses_head()) return slice(output, 1, output.size(1) - answer, output.size(1));
    const Tensor labels = slice(ids, 1, ids.size(1) - answer, ids.size(1));
    Tensor logits;
    if (is_swift() || release_.divides_logits_in_place()) {
      logits = slice(scale_part(output, slice(output, 1, 0, answer)), 1, 0, answer);
    } else {
      logits = divide_scalar(slice(output, 1, 0, answer));
    }
    output.reset();
    const Tensor log_probs = selective_log_softmax(logits, labels);
    if (trained && !is_swift() && release_.computes_entropies()) {
      const GradMode no_grad(tape_, false);
      entropy_of_logits(logits.detach());
    }
    return log_probs;
  }

  bool is_swift() const { return strategy_.post_training->program == PostTraining::Program::ms_swift; }
  bool learns_of_whole_answers() const { return strategy_.post_training->kind == PostTraining::Kind::rloo; }

  /// RLOO: of what the policy said, the sums over whole answers are kept; what the reference said goes into the rewards.
  void score_whole_answers(const Tensor& ids, const Tensor& mask, const Tensor& answered) {
    if (!old_) old_ = tape_.empty({ids.size(0)}, DType::fp32, Category::input);
    const Tensor said = tape_.empty({ids.size(0), answer_length(strategy_)}, DType::fp32);
    score(said, *networks_.policy, ids, mask, false);
    copy_into(old_, sum(multiply(said, answered), {1}, false));
    if (!networks_.reference) return;
    const Tensor before = tape_.empty({ids.size(0), answer_length(strategy_)}, DType::fp32);
    score(before, *networks_.reference, ids, mask, strategy_.post_training->reference == Reference::adapter_off);
  }

  /// RLOO: -min(r A, clip(r) A) of whole answers.
  Tensor answers_loss(const Tensor& log_probs) const {
    const auto own = [&](const Tensor& x) { return slice(x, 0, 0, strategy_.micro_batch); };
    const Tensor whole = sum(multiply(log_probs, to(answered_, DType::fp32)), {1}, false);
    const Tensor weight = exponential(subtract(whole, own(old_)));
    const Tensor clipped = clamp(weight);
    const Tensor plain = multiply(weight, advantages_), bounded = multiply(clipped, advantages_);
    return mean(negate(larger_of(plain, bounded)), std::vector<int>{}, false);
  }

  /// min(r A, clip(r) A) of each token, and the KL term where a reference was asked.
  Tensor policy_loss(const Tensor& log_probs) const {
    const auto own = [&](const Tensor& x) { return slice(x, 0, 0, strategy_.micro_batch); };
    const Tensor advantages = unsqueeze(advantages_, 1);
    const Tensor ratio = subtract(log_probs, old_ ? own(old_) : log_probs.detach());
    const Tensor weight = exponential(ratio);
    Tensor divergence;
    if (before_) {
      const Tensor difference = subtract(own(before_), log_probs);
      const Tensor grown = exponential(difference);
      divergence = add_scalar(subtract(grown, difference));
    }
    Tensor losses;
    {
      const Tensor clipped = clamp(weight);
      const Tensor plain = multiply(weight, advantages), bounded = multiply(clipped, advantages);
      losses = negate(larger_of(plain, bounded));
    }
    if (divergence) losses = add(losses, multiply_scalar(divergence));
    const Tensor counted = multiply(losses, to(answered_, DType::fp32));
    const Tensor total = sum(counted, {0, 1}, false);
    return divide_scalar(total);
  }

  const Strategy& strategy_;
  TrlRelease release_;
  TrlNetworks networks_;
  Tape& tape_;
  Tensor ids_, answered_, advantages_;  ///< of the micro-batch
  Tensor old_, before_;  ///< of the step: what the policy and the reference said of the answers' tokens; rloo: of whole answers
};

}  // namespace

std::unique_ptr<Network> make_grpo(const Strategy& strategy, TrlNetworks networks, Tape& tape) {
  return std::make_unique<GrpoNetwork>(strategy, std::move(networks), tape);
}

}  // namespace plimsoll::program

// GRPOTrainer and RLOOTrainer (trl/trainer/grpo_trainer.py, rloo_trainer.py): answers that were written before are scored without
// gradients, by the policy as it is and by a reference, then learnt of micro-batch by micro-batch. Whoever wrote them stands elsewhere.
// ms-swift's GRPOTrainer (swift/rlhf_trainers/grpo_trainer.py) divides whole logits in place, logs no entropies unless it is asked to, and
// keeps what was scored piece by piece.
#include <utility>

#include "program/frameworks/transformers/trl/answer_logs.hpp"
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
      : strategy_(strategy), release_(strategy.releases.of(Package::trl)), networks_(std::move(networks)), tape_(tape), logs_(strategy, tape) {}

  /// _generate_and_score_completions, behind the generation: in pieces of a micro-batch.
  void before_step(const Batch& batch) override {
    const PostTraining& post = *strategy_.post_training;
    if (post.engine_sleeps) tape_.empty_cache();  // sync_weights, before it wakes the engine
    tape_.phase(Phase::rollout);
    const GradMode no_grad(tape_, false);
    const Tensor& answered = batch.conditions[2];
    if (logs()) logs_.lengths(batch.input_ids.size(0));
    if (logs() && !learns_of_whole_answers()) logs_.tokens(answered);
    const PhaseScope scoring(tape_, Phase::scoring);
    const Tensor ids = cat({batch.input_ids, batch.conditions[1]}, 1), mask = cat({batch.conditions[0], answered}, 1);
    Tensor said, before;
    if (learns_of_whole_answers() || post.old_log_probs.value_or(false)) said = scored(*networks_.policy, ids, mask, false);
    const Tensor whole = learns_of_whole_answers() ? sum(multiply(said, answered), {1}, false) : Tensor();
    const bool corrects = corrects_engine();
    const Tensor by_engine = corrects ? tape_.empty(said.sizes(), DType::fp32, Category::input) : Tensor();
    const Tensor ratio = corrects ? logs_.engine_ratio(said, by_engine, answered) : Tensor();
    if (networks_.reference) before = scored(*networks_.reference, ids, mask, post.reference == Reference::adapter_off);
    if (logs()) logs_.rewards(ids.size(0));
    if (logs() && learns_of_whole_answers() && before) logs_.divergence(said, before, answered);
    if (corrects) logs_.engine_differences(said, by_engine, answered, ratio);
    const Tensor order = logs() ? tape_.empty({ids.size(0)}, DType::int64, Category::input) : Tensor();
    if (logs()) shuffle(batch, by_engine, order);
    keep(old_, learns_of_whole_answers() ? whole : said, order);
    if (!learns_of_whole_answers()) keep(before_, before, order);
    keep(ratio_, ratio, order);
  }

  Tensor loss(const Batch& batch) override {
    const auto own = [&](const Tensor& x) { return slice(x, 0, 0, strategy_.micro_batch); };
    ids_ = cat({own(batch.input_ids), own(batch.conditions[1])}, 1);
    const Tensor mask = cat({own(batch.conditions[0]), own(batch.conditions[2])}, 1);
    answered_ = own(batch.conditions[2]);
    advantages_ = own(batch.conditions[3]);
    const Tensor labels = labels_of(ids_, mask);
    const std::optional<DType> type = scoring_autocast(strategy_);
    const AutocastScope autocast(tape_, type.has_value(), type.value_or(DType::bf16));
    return networks_.policy->loss({ids_, labels});
  }

  Tensor criterion(Tensor output) override {
    output = networks_.policy->criterion(std::move(output));
    tape_.phase(Phase::loss);
    Tensor log_probs = log_probs_of(std::move(output), ids_, true);
    if (logs()) log_probs = cat({log_probs}, 0);  // of one piece
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

  /// What TRL's trainer alone computes and logs beside the loss.
  bool logs() const { return !is_swift(); }
  /// TRL scores answers of vLLM's once more to weigh them by how far the two are apart.
  bool corrects_engine() const { return logs() && !learns_of_whole_answers() && strategy_.post_training->old_log_probs.value_or(false); }

  /// shuffle_sequence_dict: every tensor of the step anew, by an index that comes from the host.
  static void shuffle(const Batch& batch, const Tensor& by_engine, const Tensor& order) {
    for (const Tensor* each : {&batch.input_ids, &batch.conditions[0], &batch.conditions[1], &batch.conditions[2], &batch.conditions[3], &by_engine})
      if (*each) indexed_by(*each, 0, {order});
  }

  /// Numbers of a step's answers stay until the next step's take their place; `order`: shuffled.
  void keep(Tensor& place, const Tensor& numbers, const Tensor& order) const {
    if (!numbers) return;
    if (!place) place = tape_.empty(numbers.sizes(), DType::fp32, Category::input);
    copy_into(place, order ? indexed_by(numbers, 0, {order}) : numbers);
  }

  /// _get_per_token_logps_and_entropies of a whole step's answers, without a graph.
  Tensor scored(Network& network, const Tensor& ids, const Tensor& mask, bool adapters_off) const {
    Tensor output;  // a Python variable: it lives until the next piece's is there
    std::vector<Tensor> pieces;
    for (std::int64_t first = 0; first < ids.size(0); first += strategy_.micro_batch) {
      const std::int64_t end = first + strategy_.micro_batch;
      const Tensor piece = slice(ids, 0, first, end);
      const Tensor labels = labels_of(piece, slice(mask, 0, first, end));
      output = answer_without_graph(network, strategy_, {piece, labels}, adapters_off, tape_);
      const GradMode no_grad(tape_, false);
      pieces.push_back(log_probs_of(output, piece, false));
    }
    const GradMode no_grad(tape_, false);
    return cat(pieces, 0);
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

  /// RLOO: -min(r A, clip(r) A) of whole answers.
  Tensor answers_loss(const Tensor& log_probs) const {
    const auto own = [&](const Tensor& x) { return slice(x, 0, 0, strategy_.micro_batch); };
    const Tensor whole = sum(multiply(log_probs, answered_), {1}, false);
    const Tensor weight = exponential(subtract(whole, own(old_)));
    const Tensor clipped = clamp(weight);
    const Tensor plain = multiply(weight, advantages_), bounded = multiply(clipped, advantages_);
    const Tensor loss = mean(negate(larger_of(plain, bounded)), std::vector<int>{}, false);
    log(log_probs, {}, weight, advantages_);
    return loss;
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
    if (ratio_) losses = multiply(losses, own(ratio_));
    if (divergence) losses = add(losses, multiply_scalar(divergence));
    const Tensor counted = multiply(losses, answered_);
    const Tensor loss = divide_scalar(sum(counted, {0, 1}, false));
    if (logs()) log(log_probs, divergence, weight, advantages);
    return loss;
  }

  /// Entropies have the shape of log-probabilities.
  void log(const Tensor& log_probs, const Tensor& divergence, const Tensor& weight, const Tensor& advantages) const {
    const GradMode no_grad(tape_, false);
    if (divergence) logs_.mean_of_tokens(divergence.detach(), answered_);
    if (release_.computes_entropies()) logs_.mean_of_tokens(log_probs.detach(), answered_);
    logs_.clipped(weight.detach(), advantages, answered_);
  }

  const Strategy& strategy_;
  TrlRelease release_;
  TrlNetworks networks_;
  Tape& tape_;
  Tensor ids_, answered_, advantages_;  ///< of the micro-batch
  AnswerLogs logs_;
  Tensor old_, before_;  ///< of the step: what the policy and the reference said of the answers' tokens; rloo: of whole answers
  Tensor ratio_;         ///< of the step: what the engine's answers weigh
};

}  // namespace

std::unique_ptr<Network> make_grpo(const Strategy& strategy, TrlNetworks networks, Tape& tape) {
  return std::make_unique<GrpoNetwork>(strategy, std::move(networks), tape);
}

}  // namespace plimsoll::program

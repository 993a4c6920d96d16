// ORPOTrainer and CPOTrainer (trl/trainer/orpo_trainer.py, cpo_trainer.py to 0.25, since then trl/experimental): the policy answers both
// texts of every pair in one pass, whole logits are compared without a reference, beside the next token of the better text.
#include <utility>
#include <vector>

#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/token_scores.hpp"
#include "program/trl_release.hpp"

namespace plimsoll::program {

namespace {

using Kind = PostTraining::Kind;

class PairsNetwork final : public Network {
 public:
  PairsNetwork(const Strategy& strategy, TrlNetworks networks, Tape& tape)
      : strategy_(strategy), release_(strategy.releases.of(Package::trl)), networks_(std::move(networks)), tape_(tape) {}

  /// concatenated_inputs: the batch has ids, mask and labels of the better texts and of the worse ones.
  Tensor loss(const Batch& batch) override {
    ids_ = cat({batch.input_ids, batch.conditions[2]}, 0);
    mask_ = cat({batch.conditions[0], batch.conditions[3]}, 0);
    labels_ = cat({batch.conditions[1], batch.conditions[4]}, 0);
    return networks_.policy->loss({ids_, {}});
  }

  Tensor criterion(Tensor output) override {
    const Tensor logits = networks_.policy->criterion(std::move(output));
    tape_.phase(Phase::loss);
    Tensor supervised;
    if (learns_next_token()) supervised = next_token_loss(logits);
    const Tensor said = log_probs_of(logits);
    const std::int64_t pairs = strategy_.micro_batch;
    const Tensor chosen = slice(said, 0, 0, pairs), rejected = slice(said, 0, pairs, 2 * pairs);
    const Tensor losses = strategy_.post_training->kind == Kind::orpo ? odds_ratio_losses(chosen, rejected) : sigmoid_losses(chosen, rejected);
    Tensor loss = mean(losses, std::vector<int>{}, false);
    if (supervised) loss = add(loss, supervised);
    log_metrics(chosen, rejected, logits, supervised);
    for (Tensor* each : {&ids_, &mask_, &labels_}) each->reset();
    return loss;
  }

 private:
  bool learns_next_token() const { return strategy_.post_training->kind == Kind::orpo || strategy_.post_training->supervised_term.value_or(true); }

  /// The better texts' cross entropy; ORPO's labels are all tokens, CPO's the answers' alone.
  Tensor next_token_loss(const Tensor& logits) const {
    Tensor labels;
    if (strategy_.post_training->kind == Kind::orpo) {
      const Tensor whole = clone(ids_), real = compare(mask_, {}, DType::boolean);
      labels = where(real, whole);
    } else {
      labels = clone(labels_);
    }
    const std::int64_t pairs = strategy_.micro_batch;
    return causal_lm_loss(slice(logits, 0, 0, pairs), slice(labels, 0, 0, pairs), {.upcasts_within = false, .copies_shifted = true});
  }

  /// get_batch_logps: of every text one number, the sum or the mean of what logits say of its answer's tokens.
  Tensor log_probs_of(const Tensor& whole) const {
    const Tensor logits = slice(whole, 1, 0, whole.size(1) - 1);
    Tensor labels = clone(slice(labels_, 1, 1, labels_.size(1)));
    const Tensor counted = compare(labels, {}, DType::boolean);
    labels = where(counted, labels);
    const Tensor scores = score(logits, labels);
    return sum(multiply(scores, counted), {1}, false);
  }

  Tensor score(const Tensor& logits, const Tensor& labels) const {
    if (release_.scores_pairs_by_kernel()) return kernel_log_probs(logits, labels);
    if (release_.selects_log_softmax()) return selective_log_softmax(logits, labels);
    const Tensor all = log_softmax(logits, logits.dtype());
    return squeeze(gather_last(all, unsqueeze(labels, 2)), 2);
  }

  /// get_batch_loss_metrics: rewards, and the mean logit of either text, each gathered from all ranks and read by the host.
  void log_metrics(const Tensor& chosen, const Tensor& rejected, const Tensor& logits, const Tensor& supervised) const {
    const GradMode no_grad(tape_, false);
    const Tensor better = multiply_scalar(chosen.detach()), worse = multiply_scalar(rejected.detach());
    const Tensor right = to(compare(better, worse, DType::boolean), DType::fp32);
    for (const Tensor& each : {better, worse, right, subtract(better, worse), rejected.detach(), chosen.detach()}) tell(each);
    const std::int64_t pairs = strategy_.micro_batch;
    for (const std::int64_t first : {pairs, std::int64_t{0}})
      tell(mean(slice(logits.detach(), 0, first, first + pairs), std::vector<int>{}, false));
    if (supervised) tell(supervised.detach());
  }

  /// accelerator.gather_for_metrics(x).mean().item()
  void tell(const Tensor& x) const {
    const Tensor all = gathered_from_ranks(x, strategy_, tape_);
    mean(all, std::vector<int>{}, false);
    tape_.read_back();
  }

  static Tensor log_of_rest(const Tensor& x) { return function(kLog1p, negate(exponential(x))); }

  static Tensor odds_ratio_losses(const Tensor& chosen, const Tensor& rejected) {
    const Tensor difference = subtract(chosen, rejected), rest = subtract(log_of_rest(chosen), log_of_rest(rejected));
    const Tensor odds = subtract(difference, rest);
    return multiply_scalar(function(kLogSigmoid, odds));
  }

  static Tensor sigmoid_losses(const Tensor& chosen, const Tensor& rejected) {
    const Tensor scaled = multiply_scalar(subtract(chosen, rejected));
    return multiply_scalar(negate(function(kLogSigmoid, scaled)));
  }

  const Strategy& strategy_;
  TrlRelease release_;
  TrlNetworks networks_;
  Tape& tape_;
  Tensor ids_, mask_, labels_;  ///< of both texts
};

}  // namespace

std::unique_ptr<Network> make_pairs(const Strategy& strategy, TrlNetworks networks, Tape& tape) {
  return std::make_unique<PairsNetwork>(strategy, std::move(networks), tape);
}

}  // namespace plimsoll::program

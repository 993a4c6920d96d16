// Trainers that subclass TRL's and bring a forward of their own: LLaMA-Factory's CustomDPOTrainer (DPO, ORPO, SimPO) and CustomKTOTrainer
// (src/llamafactory/train/dpo/trainer.py, kto/trainer.py, trainer_utils.py), ms-swift's DPOTrainer and KTOTrainer (swift/rlhf_trainers, before
// 4.0 swift/trainers/rlhf_trainer).
#include <algorithm>
#include <utility>
#include <vector>

#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/token_scores.hpp"

namespace plimsoll::program {

namespace {

using Kind = PostTraining::Kind;
using Program = PostTraining::Program;
using Reference = PostTraining::Reference;

/// Of every text one number, and the logits where the trainer's variable holds them while the loss is computed.
struct TextScores {
  Tensor texts, logits;
};

/// get_batch_logps of LLaMA-Factory: log_softmax of whole logits in fp32.
TextScores llama_factory_scores(const Tensor& output, const Tensor& labels_in) {
  const Tensor whole = to(output, DType::fp32);
  Tensor labels = clone(slice(labels_in, 1, 1, labels_in.size(1)));
  const Tensor counted = compare(labels, {}, DType::boolean), ignored = compare(labels, {}, DType::boolean);
  labels = assign_masked(labels, ignored);
  Tensor scores;
  {
    const Tensor all = log_softmax(slice(whole, 1, 0, whole.size(1) - 1), DType::fp32);
    scores = squeeze(gather_last(all, unsqueeze(labels, 2)), 2);
  }
  return {sum(multiply(scores, counted), {1}, false), whole};
}

/// get_per_token_logps of ms-swift: TRL's selective_log_softmax of the logits that were kept, against labels that are rolled, and the mean
/// of each token's logits.
TextScores ms_swift_scores(const Tensor& logits, const Tensor& labels_in) {
  const Tensor kept = slice(labels_in, 1, labels_in.size(1) - logits.size(1), labels_in.size(1));
  Tensor labels = clone(rolled(kept, 1));
  const Tensor counted = compare(labels, {}, DType::boolean), ignored = compare(counted, {}, DType::boolean);
  labels = assign_masked(labels, ignored);
  const Tensor means = assign_masked(mean(logits, std::vector<int>{-1}, false), ignored);
  const Tensor scores = assign_masked(selective_log_softmax(logits, labels), ignored);
  return {sum(scores, {1}, false), {}};
}

/// What both kinds of trainers do with two models.
class OwnForward : public Network {
 public:
  OwnForward(const Strategy& strategy, TrlNetworks networks, Tape& tape) : strategy_(strategy), networks_(std::move(networks)), tape_(tape) {}

 protected:
  bool is_llama_factory() const { return strategy_.post_training->program == Program::llamafactory; }

  TextScores scores_of(const Tensor& output, const Tensor& labels) const {
    return is_llama_factory() ? llama_factory_scores(output, labels) : ms_swift_scores(output, labels);
  }

  /// A pass without a graph.
  TextScores scored_without_graph(Network& network, const Tensor& ids, const Tensor& labels, bool adapters_off) const {
    const Tensor copied = is_llama_factory() ? clone(ids) : ids;  // nested_detach(batch, clone=True)
    const Tensor output = answer_without_graph(network, strategy_, {copied, {}}, adapters_off, tape_);
    const GradMode no_grad(tape_, false);
    return scores_of(output, labels);
  }

  bool adapters_off() const { return strategy_.post_training->reference == Reference::adapter_off; }

  const Strategy& strategy_;
  TrlNetworks networks_;
  Tape& tape_;
  Batch batch_;
};

class OwnPairs final : public OwnForward {
 public:
  using OwnForward::OwnForward;

  Tensor loss(const Batch& batch) override {
    batch_ = batch;
    return networks_.policy->loss({is_llama_factory() && networks_.reference ? clone(batch.input_ids) : batch.input_ids, {}});
  }

  Tensor criterion(Tensor output) override {
    output = networks_.policy->criterion(std::move(output));
    tape_.phase(Phase::loss);
    const Tensor& labels = batch_.conditions[1];
    const TextScores policy = scores_of(output, labels);
    output.reset();
    const std::vector<Tensor> said = chunk(policy.texts, 2, 0);
    Tensor difference = subtract(said[0], said[1]);
    if (networks_.reference) {
      const TextScores before = scored_without_graph(*networks_.reference, batch_.input_ids, labels, adapters_off());
      const std::vector<Tensor> reference = chunk(before.texts, 2, 0);
      difference = subtract(difference, subtract(reference[0], reference[1]));
    }
    const Tensor scaled = multiply_scalar(difference);
    const Tensor losses = negate(function(kLogSigmoid, scaled));
    const Tensor loss = mean(losses, std::vector<int>{}, false);
    batch_ = {};
    return loss;
  }
};

class OwnKto final : public OwnForward {
 public:
  using OwnForward::OwnForward;

  /// ms-swift scores the answers behind others' prompts first, LLaMA-Factory behind its own pass.
  void before_forward(const Batch& batch) override {
    if (!is_llama_factory() && has_kl_batch()) kl_ = kl_term(*networks_.policy, batch, false);
  }

  Tensor loss(const Batch& batch) override {
    batch_ = batch;
    return networks_.policy->loss({is_llama_factory() ? clone(batch.input_ids) : batch.input_ids, {}});
  }

  Tensor criterion(Tensor output) override {
    output = networks_.policy->criterion(std::move(output));
    tape_.phase(Phase::loss);
    const Tensor& labels = batch_.conditions[1];
    TextScores policy = scores_of(output, labels);
    output.reset();
    Tensor kl = std::move(kl_);
    if (is_llama_factory()) kl = kl_term(*networks_.policy, batch_, false);
    const Kinds kinds = kinds_of(policy.logits);
    policy.logits.reset();  // concatenated_forward has returned
    Tensor before, reference_kl;
    if (networks_.reference) {
      if (!is_llama_factory() && has_kl_batch()) reference_kl = kl_term(*networks_.reference, batch_, adapters_off());
      const TextScores said = scored_without_graph(*networks_.reference, batch_.input_ids, labels, adapters_off());
      if (is_llama_factory()) reference_kl = kl_term(*networks_.reference, batch_, adapters_off());
      const GradMode no_grad(tape_, false);
      const Kinds dropped = kinds_of(said.logits);
      before = said.texts;
    }
    const Tensor ratio = before ? subtract(policy.texts, before) : policy.texts;
    const Tensor likelihood = sigmoid(multiply_scalar(ratio));
    const Tensor loss = mean(add_scalar(negate(likelihood)), std::vector<int>{}, false);
    batch_ = {};
    return loss;
  }

 private:
  /// Copies of the wanted and unwanted answers' logits, for the means that are logged.
  struct Kinds {
    Tensor wanted, unwanted;
  };

  Kinds kinds_of(const Tensor& logits) const {
    if (!logits) return {};
    const auto rows = [&] { return tape_.empty({std::max<std::int64_t>(1, strategy_.micro_batch / 2)}, DType::int64); };
    return {index_rows(logits, rows()), index_rows(logits, rows())};
  }

  bool has_kl_batch() const { return strategy_.post_training->kl_batch.value_or(true); }

  Tensor kl_term(Network& network, const Batch& batch, bool adapters_off) const {
    return scored_without_graph(network, batch.conditions[2], batch.conditions[4], adapters_off).texts;
  }

  Tensor kl_;
};

}  // namespace

std::unique_ptr<Network> make_own_forward(const Strategy& strategy, TrlNetworks networks, Tape& tape) {
  if (strategy.post_training->kind == Kind::kto) return std::make_unique<OwnKto>(strategy, std::move(networks), tape);
  return std::make_unique<OwnPairs>(strategy, std::move(networks), tape);
}

}  // namespace plimsoll::program

// verl's workers (verl/workers/engine_workers.py and engine/fsdp/transformer_impl.py of 0.9.1, FSDPEngineWithLMHead): packed rows of
// whole sequences are scored by the actor as it is and by a reference, then learnt of row by row. Between those passes parameters and
// optimizer's states may lie on the host.
#include <algorithm>
#include <utility>
#include <vector>

#include "program/frameworks/transformers/training.hpp"
#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/op.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/token_scores.hpp"

namespace plimsoll::program {

namespace {

using Reference = PostTraining::Reference;
using Workers = PostTraining::Workers;

/// What a micro-batch brings onto the device (forward_step, micro_batch.to(device)).
struct Row {
  Tensor ids, positions, labels, temperature;  ///< [1, tokens]; the labels are the ids rolled by one
  std::vector<Tensor> others;                  ///< [tokens or answers' tokens]: prompts, answers, masks
  Tensor old, before, advantages;              ///< [answers, tokens] fp32, of what is learnt of
};

class VerlNetwork final : public Network {
 public:
  VerlNetwork(const Strategy& strategy, TrlNetworks networks, Tape& tape)
      : strategy_(strategy), networks_(std::move(networks)), tape_(tape) {}

  void rests(Resting parameters, Resting states) override {
    parameters_ = std::move(parameters);
    states_ = std::move(states);
  }

  /// From the rollout to the first micro-batch that is learnt of.
  void before_step(const Batch&) override {
    tape_.empty_cache();  // update_weights, before the engine wakes
    tape_.phase(Phase::rollout);
    score_answers();
    tape_.phase(Phase::forward);
    if (workers().params_rest) parameters_.fetch();
    if (workers().states_rest) states_.fetch();
  }

  void after_update() override {
    rest_parameters();
    if (workers().states_rest) states_.rest();
  }

  Tensor loss(const Batch&) override {
    const Row row = brought(workers().row_tokens, true);
    const bool entropic = workers().learns_entropy;
    Tensor log_probs, entropies;
    {
      const Tensor logits = logits_of(*networks_.policy, row);
      if (entropic) entropies = compiled_entropy(logits);
      log_probs = flash_log_probs(logits, row.labels, !entropic);
    }
    log_probs = answers_of(log_probs);
    if (entropies) entropies = answers_of(entropies);
    return policy_loss(log_probs, entropies, row);
  }

 private:
  /// What the policy and its reference say of the answers.
  void score_answers() {
    const PhaseScope scoring(tape_, Phase::scoring);
    if (workers().params_rest) parameters_.fetch();
    score(*networks_.policy, workers().score_tokens, false, true);
    if (strategy_.post_training->reference == Reference::adapter_off) {
      rest_parameters();
      if (workers().params_rest) parameters_.fetch();
      score(*networks_.policy, workers().score_tokens, true, false);
    }
    rest_parameters();
    if (strategy_.post_training->reference == Reference::model) score(*networks_.reference, workers().reference_tokens, false, false);
  }

  const Workers& workers() const { return strategy_.post_training->workers; }
  std::int64_t sequences_of(std::int64_t tokens) const { return ceil_div(tokens, strategy_.seq_len); }

  void rest_parameters() const {
    if (!workers().params_rest) return;
    parameters_.rest();
    tape_.empty_cache();  // offload_fsdp_model_to_cpu
  }

  Row brought(std::int64_t tokens, bool learns) const {
    const auto put = [&](const Dims& sizes, DType type) { return tape_.empty(sizes, type, Category::input); };
    const std::int64_t rows = sequences_of(tokens), answer = answer_length(strategy_);
    Row row;
    row.ids = put({1, tokens}, DType::int64);
    row.positions = put({1, tokens}, DType::int64);
    row.others = {put({rows, strategy_.post_training->prompt_len}, DType::int64), put({rows, answer}, DType::int64),
                  put({rows, answer}, DType::int64), put({rows, answer}, DType::int64)};
    if (learns) {
      row.old = put({rows, answer}, DType::fp32);
      row.advantages = put({rows, answer}, DType::fp32);
      if (strategy_.post_training->reference != Reference::none) row.before = put({rows, answer}, DType::fp32);
    }
    row.temperature = put({tokens}, DType::fp32);
    row.labels = put({tokens}, DType::int64);
    return row;
  }

  /// Whole logits [tokens, classes], divided by a temperature other than 1.
  Tensor logits_of(Network& network, const Row& row) const {
    Tensor logits = network.loss({row.ids, row.ids});
    logits = squeeze(network.criterion(std::move(logits)), 0);
    return workers().scales_logits ? divide_scalar(logits) : logits;
  }

  /// infer_batch: an update's answers row by row; what was said stays on the device until all are.
  void score(Network& network, std::int64_t tokens, bool adapters_off, bool with_entropy) const {
    const GradMode no_grad(tape_, false);
    const bool before = std::exchange(tape_.adapters_off, adapters_off);
    std::vector<Tensor> said;
    for (std::int64_t done = 0; done < workers().answers * strategy_.seq_len; done += tokens) {
      const Row row = brought(tokens, false);
      const std::optional<DType> type = hf_autocast(strategy_);
      const AutocastScope autocast(tape_, type.has_value(), type.value_or(DType::bf16));
      const Tensor logits = logits_of(network, row);
      if (with_entropy) said.push_back(compiled_entropy(logits));
      said.push_back(flash_log_probs(logits, row.labels, true));
    }
    const Tensor whole = cat(said, 0);  // postprocess_batch_func
    tape_.copy({Copy::Direction::device_to_host, whole.bytes()}, tape_.stream);
    tape_.adapters_off = before;
  }

  /// no_padding_2_padding: of numbers of a packed row those of its answers, [answers, tokens], sequence by sequence.
  Tensor answers_of(const Tensor& numbers) const {
    const std::int64_t rows = sequences_of(numbers.size(0)), answer = answer_length(strategy_);
    Op op("answers", {&numbers});
    Tensor answers = op.output({rows, answer}, numbers.dtype());
    copy_into(answers, numbers);
    return op.done(answers, [tokens = numbers.size(0)](BackwardCall& b) { b.give(0, zeros(b.tape, {tokens}, b.grad().dtype())); });
  }

  /// compute_policy_loss_vanilla with its terms of entropy and KL, each summed over the answers' tokens that count (agg_loss).
  Tensor policy_loss(const Tensor& log_probs, const Tensor& entropies, const Row& row) const {
    const Tensor counts = compare(row.others[2], {}, DType::boolean);
    const auto counted = [&](const Tensor& numbers) {
      return divide_scalar(sum(multiply(where(counts, numbers), to(counts, DType::fp32)), {0, 1}, false));
    };
    Tensor losses;
    {
      const Tensor ratio = exponential(clamp(subtract(log_probs, row.old)));
      const Tensor gain = negate(row.advantages);
      const Tensor larger = larger_of(multiply(gain, ratio), multiply(gain, clamp(ratio)));
      const Tensor bounded = larger_of(multiply_scalar(gain), larger);
      losses = where(compare(row.advantages, {}, DType::boolean), bounded, larger, DType::fp32);
    }
    Tensor total = counted(losses);
    if (entropies) total = subtract(total, multiply_scalar(counted(entropies)));
    if (!row.before) return total;
    const Tensor distance = clamp(subtract(row.before, log_probs));
    const Tensor divergence = clamp(add_scalar(subtract(exponential(distance), distance)));
    return add(total, multiply_scalar(counted(divergence)));
  }

  const Strategy& strategy_;
  TrlNetworks networks_;
  Tape& tape_;
  Resting parameters_, states_;
};

}  // namespace

std::unique_ptr<Network> make_verl(const Strategy& strategy, TrlNetworks networks, Tape& tape) {
  return std::make_unique<VerlNetwork>(strategy, std::move(networks), tape);
}

}  // namespace plimsoll::program

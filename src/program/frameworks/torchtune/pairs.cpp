#include "program/frameworks/torchtune/pairs.hpp"

#include <vector>

#include "program/ops/functions.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/routing.hpp"

namespace plimsoll::program {
namespace {

/// (per_token · mask).sum(-1) of the next tokens' log-probabilities; those of labels that do not count are of class 0.
Tensor batch_log_probs(const Tensor& whole, const Tensor& all_labels) {
  const std::int64_t length = whole.size(1);
  Tensor labels = clone(slice(all_labels, 1, 1, length));
  const Tensor logits = slice(whole, 1, 0, length - 1);
  const Tensor counted = compare(labels, {}, DType::boolean);
  {
    const Tensor ignored = compare(labels, {}, DType::boolean);
    labels = assign_masked(labels, ignored);
  }
  Tensor each;
  {
    Tensor likelihoods;
    {
      const Tensor scaled = divide_scalar(logits);  // by a temperature of 1
      likelihoods = log_softmax(scaled, scaled.dtype());
    }
    each = squeeze(gather_last(likelihoods, unsqueeze(labels, -1)), -1);
  }
  return sum(multiply(each, counted), {1}, false);
}

}  // namespace

PairAnswers answers_of(const Tensor& logits, const Tensor& labels, std::int64_t pairs) {
  const Tensor said = batch_log_probs(logits, labels);
  const auto first = [&](const Tensor& of) { return slice(of, 0, 0, pairs); };
  const auto second = [&](const Tensor& of) { return slice(of, 0, pairs, 2 * pairs); };
  return {first(said), second(said), first(logits), second(logits)};
}

Tensor mean_logit(const Tensor& logits) { return mean(logits.detach(), std::vector<int>{}, false); }

Tensor dpo_loss(const PairAnswers& policy, const PairAnswers& reference) {
  const Tensor said = subtract(policy.chosen, policy.rejected), before = subtract(reference.chosen, reference.rejected);
  const Tensor logits = subtract(said, before);
  const auto term = [&](bool turned) {
    const Tensor scaled = multiply_scalar(logits);
    const Tensor likelihood = function(kLogSigmoid, scaled);
    return multiply_scalar(turned ? likelihood : negate(likelihood));
  };
  const Tensor first = term(false), smoothed = term(true);
  return mean(subtract(first, smoothed), std::vector<int>{}, false);
}

}  // namespace plimsoll::program

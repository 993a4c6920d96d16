/// torchtune's training by pairs of answers (recipes/lora_dpo_*.py of 0.6).
#pragma once

#include <cstdint>

#include "program/tape.hpp"

namespace plimsoll::program {

/// What a pass says of both answers of `pairs` prompts; logits are views of one tensor.
struct PairAnswers {
  Tensor chosen, rejected;                ///< log-probabilities [pairs]
  Tensor chosen_logits, rejected_logits;  ///< [pairs, length, classes]
};

/// rlhf.get_batch_log_probs of fp32 logits [2 pairs, length, classes] and labels [2 pairs, length], and both halves of each.
PairAnswers answers_of(const Tensor& logits, const Tensor& labels, std::int64_t pairs);

/// logits.detach().mean(): logged, and dropped.
Tensor mean_logit(const Tensor& logits);

/// The mean of DPOLoss over all pairs.
Tensor dpo_loss(const PairAnswers& policy, const PairAnswers& reference);

}  // namespace plimsoll::program

/// What GRPOTrainer and RLOOTrainer (trl/trainer/grpo_trainer.py, rloo_trainer.py) compute beside models and loss: lengths, rewards,
/// advantages, and numbers that the host reads to log them. Tensors of a number a answer, or a number a token.
#pragma once

#include "plimsoll/strategy.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

class AnswerLogs {
 public:
  AnswerLogs(const Strategy& strategy, Tape& tape) : strategy_(strategy), tape_(tape) {}

  /// _generate: lengths of prompts and answers, and how many answers were cut; all are at their full length.
  void lengths(std::int64_t answers) const;
  /// num_items_in_batch.
  void tokens(const Tensor& answered) const;
  /// How far the trainer's probabilities are from the engine's, a number an answer (vllm_importance_sampling_mode sequence_mask).
  Tensor engine_ratio(const Tensor& said, const Tensor& by_engine, const Tensor& answered) const;
  /// The differences of both are logged.
  void engine_differences(const Tensor& said, const Tensor& by_engine, const Tensor& answered, const Tensor& ratio) const;
  /// _calculate_rewards of one function, and the advantages among answers to one prompt.
  void rewards(std::int64_t answers) const;
  /// RLOO: what an answer's KL term takes of its reward.
  void divergence(const Tensor& said, const Tensor& before, const Tensor& answered) const;
  /// The mean of a number of all ranks' tokens, which the host reads (global_masked_mean).
  void mean_of_tokens(const Tensor& numbers, const Tensor& answered) const;
  /// clip_ratio of `weight`: [answers, tokens], or of RLOO [answers].
  void clipped(const Tensor& weight, const Tensor& advantages, const Tensor& answered) const;

 private:
  Tensor gathered(const Tensor& numbers) const;
  void told(const Tensor& number) const;  ///< .item()
  void told_mean(const Tensor& numbers) const;
  void told_least(const Tensor& numbers) const;  ///< nanmin, nanmax
  Tensor mean_of_present(const Tensor& numbers) const;       ///< torch.nanmean
  Tensor deviation_of_present(const Tensor& numbers) const;  ///< nanstd
  Tensor weighted_rewards(const Tensor& rewards) const;

  const Strategy& strategy_;
  Tape& tape_;
};

}  // namespace plimsoll::program

/// What of TRL's trainers depends on its release.
///
/// Each rule was read in the wheels of 0.11, 0.12, 0.14, 0.16, 0.19, 0.22, 0.24, 0.27, 0.29, 1.0, 1.3 to 1.6, 1.8, 1.10, 1.12 to 1.16.
#pragma once

#include "plimsoll/release.hpp"

namespace plimsoll::program {

/// A release of TRL.
class TrlRelease {
 public:
  explicit TrlRelease(const Release& release) : release_(release) {}

  /// add_fused_lm_head: forward answers log-probabilities of the labels that count, and no logits exist whole.
  bool fuses_head() const { return release_.since(1, 15); }
  /// What is scored (GRPO's and RLOO's answers, by a reference DPO's and KTO's) is under accelerator.autocast(), whoever prepared the model.
  bool scores_under_autocast() const { return fuses_head(); }
  /// One Triton kernel over whole logits makes log-probabilities and entropies.
  bool scores_logits_by_kernel() const { return release_.since(1, 14) && !fuses_head(); }
  /// selective_log_softmax; before, log_softmax of all logits.
  bool selects_log_softmax() const { return release_.since(0, 15); }
  /// The trainer written anew in 0.29: logits and labels are shifted against each other, and entropy and accuracy are logged; before, the
  /// labels are rolled, and the means of the logits of both answers are computed with the graph.
  bool logs_entropy() const { return release_.since(0, 29); }
  /// logits[..., :-1, :].contiguous(), of policy and reference, which live as long as the logits do.
  bool copies_shifted_logits() const { return logs_entropy() && !release_.since(1, 6); }

  // ---- ORPOTrainer, CPOTrainer ----
  /// Whole logits are scored by one Triton kernel.
  bool scores_pairs_by_kernel() const { return release_.since(1, 14); }

  // ---- RewardTrainer ----
  /// Both texts of a pair go through the model in one pass; before, one after the other, each with a graph of its own.
  bool concatenates_pairs() const { return release_.since(0, 24); }

  // ---- GKDTrainer ----
  /// Logits are shifted against labels that leave the prompts out; before, what stands behind the longest prompt is cut out of both.
  bool shifts_distilled_logits() const { return release_.since(1, 7); }

  // ---- KTOTrainer ----
  /// Wanted and unwanted answers' logits are copied with the graph, by policy and reference, and live as long as the loss is computed;
  /// since, after it, without one, for means that are logged as entropy is.
  bool copies_answers_logits() const { return !release_.since(1, 7); }
  /// logits[:, :-1].contiguous().
  bool copies_shifted_kto_logits() const { return release_.since(1, 6) && !release_.since(1, 7); }

  /// Logits of the answers behind others' prompts are a variable of the function that scores the answers themselves.
  bool keeps_kl_logits() const { return !release_.since(0, 17); }

  // ---- RLOOTrainer ----
  /// Written anew beside GRPOTrainer; before, a loop of its own after PPOv2's.
  bool has_rloo_beside_grpo() const { return release_.since(0, 22); }

  // ---- GRPOTrainer, RLOOTrainer ----
  /// Logits are divided by the temperature, into a tensor of their own or where they lie.
  bool divides_logits() const { return release_.since(0, 16); }
  bool divides_logits_in_place() const { return release_.since(1, 0) && !release_.since(1, 9); }
  /// Entropies of what is learnt of are logged.
  bool computes_entropies() const { return release_.since(0, 20); }

 private:
  Release release_;
};

}  // namespace plimsoll::program

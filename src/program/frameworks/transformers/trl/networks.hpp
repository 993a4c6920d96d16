/// The losses of TRL's trainers as networks, and what they share.
#pragma once

#include <memory>
#include <optional>

#include "plimsoll/strategy.hpp"
#include "program/frameworks/transformers/trl/trainer.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

/// Tokens of one answer, which are scored.
inline std::int64_t answer_length(const Strategy& strategy) { return strategy.seq_len - strategy.post_training->prompt_len; }

/// The trained network, and the frozen one that it is compared with (null: none), whose modules are `model`'s or the policy's own.
struct TrlNetworks {
  std::unique_ptr<Network> policy, reference;
  ReferenceModel model;
  std::shared_ptr<std::vector<Tensor>> cache = {};  ///< of a teacher: the keys and values that its output object holds
};

/// `loss` and a share of what keeps a mixture's routers in balance, where the network computed it.
Tensor with_auxiliary_loss(Network& policy, Tensor loss);

/// SFTTrainer, whose head is fused.
std::unique_ptr<Network> make_sft(TrlNetworks networks, Tape& tape);
/// DPOTrainer.
std::unique_ptr<Network> make_dpo(const Strategy& strategy, TrlNetworks networks, Tape& tape);
/// RewardTrainer.
std::unique_ptr<Network> make_reward(const Strategy& strategy, TrlNetworks networks, Tape& tape);
/// GKDTrainer's and ms-swift's, of given texts.
std::unique_ptr<Network> make_gkd(const Strategy& strategy, TrlNetworks networks, Tape& tape);
/// KTOTrainer.
std::unique_ptr<Network> make_kto(const Strategy& strategy, TrlNetworks networks, Tape& tape);
/// ORPOTrainer and CPOTrainer.
std::unique_ptr<Network> make_pairs(const Strategy& strategy, TrlNetworks networks, Tape& tape);
/// LLaMA-Factory's and ms-swift's, which have a forward of their own.
std::unique_ptr<Network> make_own_forward(const Strategy& strategy, TrlNetworks networks, Tape& tape);
/// verl's workers.
std::unique_ptr<Network> make_verl(const Strategy& strategy, TrlNetworks networks, Tape& tape);
/// GRPOTrainer and RLOOTrainer.
std::unique_ptr<Network> make_grpo(const Strategy& strategy, TrlNetworks networks, Tape& tape);

/// accelerator.gather(x): of every rank, one behind the other.
Tensor gathered_from_ranks(const Tensor& x, const Strategy& strategy, Tape& tape);

/// What a trainer's passes that score compute in, where autocast chooses.
std::optional<DType> scoring_autocast(const Strategy& strategy);

/// What `network` answers to a batch, without a graph and under scoring_autocast; `adapters_off`: as PEFT's
/// disable_adapter() leaves it.
Tensor answer_without_graph(Network& network, const Strategy& strategy, const Batch& batch, bool adapters_off, Tape& tape);

}  // namespace plimsoll::program

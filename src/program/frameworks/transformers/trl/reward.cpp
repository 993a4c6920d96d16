// RewardTrainer (trl/trainer/reward_trainer.py): a head of one number scores both texts of every pair, and the loss wants the better one's
// higher.
#include <utility>
#include <vector>

#include "program/frameworks/transformers/training.hpp"
#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"
#include "program/trl_release.hpp"

namespace plimsoll::program {

namespace {

class RewardNetwork final : public Network {
 public:
  RewardNetwork(const Strategy& strategy, TrlNetworks networks, Tape& tape)
      : strategy_(strategy), release_(strategy.releases.of(Package::trl)), networks_(std::move(networks)), tape_(tape) {}

  /// Before 0.24 the better texts go first, by a pass of their own, whose graph lives beside the other's.
  void before_forward(const Batch& batch) override {
    if (release_.concatenates_pairs()) return;
    const std::optional<DType> type = hf_autocast(strategy_);
    Tensor output;
    {
      const AutocastScope autocast(tape_, type.has_value(), type.value_or(DType::bf16));
      output = networks_.policy->loss({batch.input_ids, {}});
    }
    chosen_ = networks_.policy->criterion(std::move(output));
  }

  Tensor loss(const Batch& batch) override {
    return networks_.policy->loss({release_.concatenates_pairs() ? batch.input_ids : batch.conditions[2], {}});
  }

  Tensor criterion(Tensor output) override {
    output = networks_.policy->criterion(std::move(output));
    tape_.phase(Phase::loss);
    Tensor chosen = std::move(chosen_), rejected = output;
    if (release_.concatenates_pairs()) {
      std::vector<Tensor> halves = chunk(squeeze(output, -1), 2, 0);
      chosen = halves[0];
      rejected = halves[1];
    }
    const Tensor difference = subtract(chosen, rejected);
    const Tensor likelihood = function(kLogSigmoid, difference);
    return mean(negate(likelihood), std::vector<int>{}, false);
  }

 private:
  const Strategy& strategy_;
  TrlRelease release_;
  TrlNetworks networks_;
  Tape& tape_;
  Tensor chosen_;  ///< of a pass of their own
};

}  // namespace

std::unique_ptr<Network> make_reward(const Strategy& strategy, TrlNetworks networks, Tape& tape) {
  return std::make_unique<RewardNetwork>(strategy, std::move(networks), tape);
}

}  // namespace plimsoll::program

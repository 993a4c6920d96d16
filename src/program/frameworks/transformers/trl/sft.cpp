// SFTTrainer (trl/trainer/sft_trainer.py) since 1.15: the mean of the labels' log-probabilities, which the fused head answers.
#include <utility>

#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

class SftNetwork final : public Network {
 public:
  SftNetwork(TrlNetworks networks, Tape& tape) : networks_(std::move(networks)), tape_(tape) {}

  Tensor loss(const Batch& batch) override {
    return networks_.policy->loss({.input_ids = batch.input_ids, .labels = batch.conditions[1], .router_mask = batch.conditions[0]});
  }

  Tensor criterion(Tensor output) override {
    output = networks_.policy->criterion(std::move(output));
    tape_.phase(Phase::loss);
    const Tensor losses = negate(output);
    const Tensor total = sum(losses, {0, 1}, false);
    return with_auxiliary_loss(*networks_.policy, divide_scalar(total));
  }

 private:
  TrlNetworks networks_;
  Tape& tape_;
};

}  // namespace

std::unique_ptr<Network> make_sft(TrlNetworks networks, Tape& tape) { return std::make_unique<SftNetwork>(std::move(networks), tape); }

}  // namespace plimsoll::program

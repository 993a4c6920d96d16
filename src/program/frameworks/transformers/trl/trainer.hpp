/// TRL's trainers around transformers' modules: what their losses ask of forward, the frozen model beside the trained one, and what they
/// do before a step's micro-batches.
#pragma once

#include <memory>

#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

/// What forward answers for the strategy's trainer, over `options` of a plain step. Throws Error (refused): a loss or a compilation that
/// does not go with it, a release of TRL whose kernels were not read.
RunOptions post_training_options(const Strategy& strategy, RunOptions options);

/// The inputs of one micro-batch. dpo, reward: token ids of both texts of every pair, their masks of padding and of answers; kto: of every
/// answer, and the same behind others' prompts; orpo, cpo: of the better texts, and of the worse ones; grpo, rloo: of a whole step, prompts
/// and answers with their masks, and an advantage for each.
Batch post_training_batch(const Strategy& strategy, Tape& tape);

/// Whether a frozen model stands beside the trained one: its copy, or its teacher.
bool keeps_reference_model(const Strategy& strategy);

/// The model that is frozen beside the trained one: its copy, or its teacher.
const Model& frozen_model(const Model& model, const Strategy& strategy);
const Model& frozen_model(const Model&& model, const Strategy& strategy) = delete;

/// The strategy by which that is built: without adapters, its weights in no fewer bits.
Strategy strategy_of_frozen(const Strategy& strategy);

/// The frozen model's modules, not yet on the device: the model as it came, without adapters.
std::unique_ptr<Module> reference_modules(const Model& model, const Strategy& strategy, Tape& tape);

/// A frozen model and who shards it; of a policy that is its own reference, or needs none, nothing.
struct ReferenceModel {
  std::unique_ptr<Module> root = {};
  std::shared_ptr<void> wrapper = {};  ///< what its hooks belong to
};

/// The trainer's compute_loss over `policy`, the network of `root`.
std::unique_ptr<Network> post_training_network(const Model& model, const Strategy& strategy, Module& root, std::unique_ptr<Network> policy,
                                               ReferenceModel reference, Tape& tape);

}  // namespace plimsoll::program

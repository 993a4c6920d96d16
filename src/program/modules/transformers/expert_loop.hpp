/// Mixtures before transformers 5: every expert is a module of linears, and the sparse block runs them one after the other.
#pragma once

#include <string_view>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/hf_release.hpp"
#include "program/module.hpp"
#include "program/modules/transformers/gated_mlp.hpp"

namespace plimsoll::program {

/// Puts a module of linears per expert in the place of stacked parameters, where the release has them so; the router comes first, as
/// these classes register it. Throws Error (refused): a model type whose loop is not modelled.
void separate_experts(Module& root, const Model& model, const HfRelease& release, Tape& tape);

/// The loop of MixtralSparseMoeBlock.forward and its relatives over experts that got equally many tokens.
class ExpertLoop {
 public:
  /// `experts`: the module list. `asks`: HfRelease::asks_for_hit_experts.
  ExpertLoop(Module& experts, Tape& tape, const MoeSpec& spec, bool asks);
  /// `hidden` [tokens, hidden]; `experts` and `weights` [tokens, top_k] of each token's choices.
  Tensor operator()(const Tensor& hidden, const Tensor& experts, const Tensor& weights) const;

 private:
  Tape& tape_;
  std::int64_t experts_, top_k_;
  bool asks_;
  std::vector<GatedMlp> mlps_;
};

}  // namespace plimsoll::program

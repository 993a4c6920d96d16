/// What Liger's apply_liger_kernel_to_… puts in the place of transformers' modules (liger-kernel 0.8, monkey_patch.py): the instance of a
/// model that exists already is patched, as the Trainer's use_liger_kernel does.
#pragma once

#include <optional>
#include <string>

#include "program/modules/layers.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

/// What is patched in a family.
struct LigerPatches {
  bool gradient_in_place = true;        ///< of the layers' norms
  bool final_gradient_in_place = true;  ///< of the norm behind them
  LigerModules modules = {};
  bool head_norms = false;  ///< those of queries and keys
};

/// The patches of a family under the options; none where its modules stay. Throws Error (refused): Liger does not know the family, or has
/// no such loss for it.
std::optional<LigerPatches> liger_patches(const std::string& model_type, const RunOptions& options);

/// A norm, or LigerRMSNorm in its place.
class PatchedNorm {
 public:
  PatchedNorm(Module& module, Tape& tape, const NormSpec& spec, Norm::Rounding rounding, const LigerPatches* patches)
      : norm_(module, tape, spec, rounding), module_(&module), tape_(&tape) {
    if (patches) in_place_ = patches->gradient_in_place;
  }
  Tensor operator()(const Tensor& x) const;

 private:
  Norm norm_;
  Module* module_;
  Tape* tape_;
  std::optional<bool> in_place_;  ///< none: transformers' norm
};

/// ForCausalLMLoss over Liger's cross entropy: fp32 logits, overwritten by their gradient.
Tensor liger_causal_lm_loss(const Tensor& logits, const Tensor& labels);

/// LigerForCausalLMLoss of the last hidden state [batch, length, width] and the head's own weight. Throws Error (refused): a head that is
/// adapted, or a unit of its own, whose weight Liger reads without calling the module.
Tensor liger_fused_causal_lm_loss(const Tensor& hidden, Module& head, const Tensor& labels);

}  // namespace plimsoll::program

/// What PEFT trains in, or before, a frozen causal language model instead of low-rank adapters.
#pragma once

#include <functional>
#include <memory>

#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/modules/adapters/lora.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

/// get_peft_model: ia3's vectors beside linears, ln_tuning's copies of norms, or an encoder of prompts behind the model; all else is
/// frozen. Throws Error (refused): prefix tuning, targets of another kind; bad input: no module of a target's name.
void add_peft(Module& root, const Model& model, const Peft& peft, Tape& tape);

/// PeftModelForCausalLM.forward of a model with a prompt encoder: `network` is given embeddings, the prompts' before the text's, and labels
/// of -100 before the text's.
class PromptedNetwork final : public Network {
 public:
  PromptedNetwork(std::unique_ptr<Network> network, const Model& model, const RunOptions& options, Module& root, Tape& tape);
  Tensor loss(const Batch& batch) override;

 private:
  Tensor prompts(std::int64_t batch) const;

  std::unique_ptr<Network> network_;
  RunOptions options_;
  Module& words_;
  Module& encoder_;
  Tape& tape_;
};

/// A linear with an adapter below it, LoRA's or ia3's; `base` runs what was there before.
Tensor adapted(Module& module, Tape& tape, const Tensor& input, const std::function<Tensor(const Tensor&)>& base);

/// The norm that runs in the place of `norm`: ln_tuning's copy, or itself.
Module& trained_norm(Module& norm);

}  // namespace plimsoll::program

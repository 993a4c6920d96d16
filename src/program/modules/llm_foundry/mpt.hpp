/// llm-foundry's own MPT: flash attention by Triton or flash-attention 2, norms in the autocast type, learned positions or ALiBi, a head that
/// is the embedding table, and flash-attention's cross entropy. Sources: llmfoundry/models/mpt/modeling_mpt.py and
/// llmfoundry/models/layers/{blocks,attention,norm,ffn}.py of llm-foundry v0.0.4 to v0.4.
#pragma once

#include <memory>

#include "plimsoll/kernel.hpp"
#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/network.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

struct FoundryOptions {
  AttentionLibrary attention = AttentionLibrary::triton;  ///< attn_impl triton, or flash2 with its packing of sequences
  bool recomputes = false;                                ///< activation_checkpointing of whole blocks, not reentrant
  DType type = DType::bf16;                               ///< of autocast
};

/// The modules of the model as llm-foundry names none else: linears are [out, in], the head is no module.
std::unique_ptr<Module> foundry_modules(const Model& model, Tape& tape);

/// Whether llm-foundry builds the model as its own MPT; else it wraps transformers' (hf_causal_lm).
bool is_foundry_mpt(const Model& model);

/// transformers' modules of a causal language model under Composer: autocast to `type`, outputs held from the forward pass until their
/// metrics are computed.
std::unique_ptr<Network> make_foundry_transformer(const Model& model, const RunOptions& options, DType type, Module& root, Tape& tape);

/// Throws Error (refused): a model that is no MPT.
std::unique_ptr<Network> make_foundry_mpt(const Model& model, const FoundryOptions& options, Module& root, Tape& tape);

}  // namespace plimsoll::program

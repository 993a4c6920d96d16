/// bitsandbytes' linears: frozen weights of four or eight bits under PEFT's adapters (QLoRA; LLM.int8). Source: bitsandbytes 0.50,
/// nn/modules.py and autograd/_functions.py; transformers' integrations/bitsandbytes.py.
#pragma once

#include <optional>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// replace_with_bnb_linear: every nn.Linear (and Conv1D) but the head becomes a Linear4bit or a Linear8bitLt. Adapters are put in before.
/// What is no module of its own, as the stacked experts of a mixture, stays as it is.
/// 4-bit weights are NF4, two elements a byte, which lie as elements of `storage`, with a maximum per 64 elements, in fp32 or, double
/// quantised, in a byte with an fp32 maximum per 256 of them; 8-bit ones have a maximum per row.
/// Throws Error (refused): a model without such linears.
void quantize_linears(Module& root, const Model& model, BaseWeights kind, DType storage, Tape& tape);

/// A 4-bit weight of these sizes by bitsandbytes' kernels, called outside of its modules (axolotl/kernels/quantize.py): in the type that it
/// was quantised from, made before its widened maxima.
Tensor dequantized_4bit(Module& linear, const Dims& sizes, Tape& tape);

/// Whether the linear is bitsandbytes', of either kind.
bool is_quantized(const Module& linear);

/// Whether it is a Linear4bit.
bool is_4bit(const Module& linear);

}  // namespace plimsoll::program

/// bitsandbytes' Linear4bit: frozen weights of four bits under PEFT's adapters (QLoRA).
#pragma once

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// replace_with_bnb_linear: the weight of every linear but the head's becomes NF4, two elements a byte, with a maximum per 64 elements, in
/// fp32 or, double quantised, in a byte with an fp32 maximum per 256 of them. Adapters are put in before.
/// Throws Error (refused): a model without linears of this kind (a mixture's experts, GPT-2's Conv1D).
void quantize_linears(Module& root, const Model& model, bool doubly);

/// Whether the linear's weight is quantised.
bool is_4bit(Module& linear);

/// Linear4bit.forward: the product in `compute`, the result in the type of x. Its backward dequantises the weight again.
Tensor linear_4bit(Module& linear, const Tensor& x, DType compute);

}  // namespace plimsoll::program

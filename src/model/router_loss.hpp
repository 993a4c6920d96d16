// The auxiliary loss by which routers deal tokens evenly.
#pragma once

#include "plimsoll/model.hpp"

namespace plimsoll::model {

/// What a program does that asks a mixture's forward for its routers' logits, whatever config.json says of output_router_logits: their
/// auxiliary loss becomes part of the language model's. Nothing follows for a class that computes none (transformers 5.23).
void ask_for_router_logits(Model& model);

/// Whether a program that asks adds such a loss by itself: of a class that computes one, unless its config weighs it with 0
/// (router_aux_loss_coef).
bool has_router_loss(const Model& model);

}  // namespace plimsoll::model

/// The loop of diffusers' training scripts around a transformer (examples/dreambooth/train_dreambooth_*.py): frozen encoders of prompts and an
/// autoencoder beside it, which make what it learns of.
#pragma once

#include <memory>

#include "plimsoll/strategy.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

/// Puts the neighbours that the strategy asks for onto the device, runs those whose answers are kept and lets them go, and answers the
/// network with the others in front of it. `network` itself where it asks for none.
std::unique_ptr<Network> beside_neighbours(const Model& model, const Strategy& strategy, std::unique_ptr<Network> network, Tape& tape);

/// Drops of a resident micro-batch what neighbours make anew in every step.
void drop_what_neighbours_make(const Model& model, const Strategy& strategy, Batch& batch);

}  // namespace plimsoll::program

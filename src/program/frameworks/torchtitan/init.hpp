/// What initializing the weights of a TorchTitan model allocates and frees on the device.
#pragma once

#include "program/modules/torchtitan/decoder.hpp"
#include "program/tape.hpp"
#include "program/wrappers/fsdp/fsdp2.hpp"

namespace plimsoll::program {

/// Decoder.init_states of what `sharding` cuts: rotary tables are computed anew, truncated normals are checked for outliers (masks over the
/// whole weight), a fused query-key-value weight is made whole before it is cut. `on_host`: weights are drawn there, of which the device
/// sees nothing.
void initialize_weights(Tape& tape, TitanDecoder& decoder, const Fsdp2Options& sharding, bool on_host);

}  // namespace plimsoll::program

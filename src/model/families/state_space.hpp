// Mixers that scan the sequence with a learned state, for layers that are put together by a family itself.
#pragma once

#include <string>
#include <vector>

#include "model/block_builder.hpp"

namespace plimsoll::model {

/// Appends a Mamba-2 mixer called "mixer" and says so in the block; answers the index of its last operator.
int add_mamba2(BlockBuilder& block, int from, const MambaSpec& spec, bool bias, bool convolution_bias);
/// The order in which it registers what is in it.
std::vector<std::string> mamba2_registration();

}  // namespace plimsoll::model

/// Block masks of flex_attention over packed sequences (torchtitan/models/common/attention.py).
#pragma once

#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// get_efficient_causal_mask_mod_for_packed_document and the compiled create_block_mask: what a mask of `positions` [batch, length] keeps on
/// the device, the bounds of documents and the blocks of 128 × 128 of both directions.
std::vector<Tensor> packed_causal_mask(const Tensor& positions);

}  // namespace plimsoll::program

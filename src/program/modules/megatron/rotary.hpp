/// Rotary embeddings of Megatron-core by PyTorch's operators, where no fused kernel applies them.
/// Source: megatron/core/models/common/embeddings/rope_utils.py, _apply_rotary_pos_emb_bshd.
#pragma once

#include "program/tape.hpp"

namespace plimsoll::program {

/// x [length, batch, heads, width] turned by `frequencies` [length, 1, 1, turned width]; cosines and sines are made anew in every call.
Tensor rotate(const Tensor& x, const Tensor& frequencies);

/// The same of latent attention: the two numbers of a pair lie beside each other and are first put apart.
Tensor rotate_pairs(const Tensor& x, const Tensor& frequencies);

}  // namespace plimsoll::program

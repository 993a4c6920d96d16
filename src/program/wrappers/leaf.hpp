/// Leaves on a storage that a wrapper owns.
#pragma once

#include "program/tape.hpp"

namespace plimsoll::program {

/// A gathered parameter as nn.Parameter(as_strided(flat)): a leaf on the flat tensor's storage that is no view to autograd.
inline Tensor leaf_on(Tape& tape, const Tensor& flat, const Dims& sizes, bool trainable) {
  Tensor leaf = tape.view(flat, sizes, contiguous_strides(sizes));
  leaf.impl()->base.reset();
  leaf.set_requires_grad(trainable);
  return leaf;
}

}  // namespace plimsoll::program

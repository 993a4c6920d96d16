/// Apple's cut cross entropy (cut_cross_entropy/cce.py, of Apple and of axolotl's fork): head and loss in one function, without logits.
#pragma once

#include "program/tape.hpp"

namespace plimsoll::program {

/// cce_linear_cross_entropy of hidden [batch, length, width] through weight [classes, width], each position for the label behind it, all of
/// which count; the sum over them, or the mean: a scalar. Forward keeps a number per token and one per class; backward makes the logits
/// again, block by block, and both gradients. `softcap`: the logits have one.
Tensor cut_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& labels, bool softcap);

}  // namespace plimsoll::program

/// torch.einsum of one or two tensors: at::einsum and sumproduct_pair (aten/src/ATen/native/Linear.cpp).
#pragma once

#include <string>
#include <vector>

#include "program/op.hpp"

namespace plimsoll::program {

/// `labels[i]`: a letter for each dimension of `operands[i]`, each once; `out`: those of the result, all of which stand among them. All
/// labels together are at most Dims::kMost.
Tensor einsum(const std::vector<std::string>& labels, const std::string& out, const std::vector<Tensor>& operands);

}  // namespace plimsoll::program

/// Systems of equations of triangular matrices.
#pragma once

#include "program/op.hpp"

namespace plimsoll::program {

/// torch.linalg.solve_triangular(a, b, upper=…) of a [*, n, n] and b [*, n, m] of equal batches.
Tensor solve_triangular(const Tensor& a, const Tensor& b);

}  // namespace plimsoll::program

/// Elementwise operators that only code which is read asks for.
#pragma once

#include "program/op.hpp"

namespace plimsoll::program {

/// a == b, a < b, a & b …: of `type`; without b, of a number. No gradient.
Tensor compare(const Tensor& a, const Tensor& b, DType type);
Tensor reciprocal(const Tensor& x);
Tensor exponential(const Tensor& x);
Tensor logarithm(const Tensor& x);
Tensor square_root(const Tensor& x);
Tensor absolute(const Tensor& x);
/// number ** x, of a whole number or a real one, which stands on the device meanwhile.
Tensor raised(const Tensor& x, bool whole);
/// x.tril(), x.triu().
Tensor triangle(const Tensor& x);
/// x.mean(dimensions); of none: of all.
Tensor mean(const Tensor& x, const std::vector<int>& dimensions, bool keep);

/// Whether x.view(sizes) exists without a copy; no size is -1.
bool can_view(const Tensor& x, const Dims& sizes);

}  // namespace plimsoll::program

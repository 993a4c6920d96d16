/// Operators that choose among elements: where, the larger of two, extremes and their places, running sums; and norms and variances.
#pragma once

#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

/// torch.where(condition, a, b); an undefined side is a number, of `number`'s type.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, DType number);
/// x.masked_fill(mask, value) of a tensor without dimensions; the mask may have more dimensions than x.
Tensor masked_fill_by(const Tensor& x, const Tensor& mask, const Tensor& value);
/// x.masked_fill_(mask, number): the result has x's storage.
Tensor masked_fill_into(const Tensor& x, const Tensor& mask);
/// torch.maximum, torch.minimum.
Tensor larger_of(const Tensor& a, const Tensor& b);
/// x.clamp(min=tensor, max=tensor); either may be undefined. x alone takes a gradient.
Tensor clamp_between(const Tensor& x, const Tensor& least, const Tensor& most);

/// x.amax(dimensions): equal extremes share the gradient.
Tensor extreme(const Tensor& x, const std::vector<int>& dimensions, bool keep);
/// x.max() of all.
Tensor extreme_of_all(const Tensor& x);
/// x.max(dim): values and places.
TopK extreme_with_place(const Tensor& x, int dimension, bool keep);
/// x.argmax(dim); no dimension (-1): of all.
Tensor place_of_extreme(const Tensor& x, int dimension, bool keep);
/// x.topk(k, dim), x.sort(dim) (`k` all of it) over the last dimension.
TopK sorted_rows(const Tensor& x);
/// x.any(dim), x.all(dim): reductions to a type of their own that take no gradient.
Tensor reduced_to(const Tensor& x, const std::vector<int>& dimensions, bool keep, DType type);
/// x.sum(dimensions, dtype=torch.float32) of 16-bit numbers, which the kernel widens on its way.
Tensor sum_in_fp32(const Tensor& x, const std::vector<int>& dimensions, bool keep);
/// x.cumsum(dim) in `type`.
Tensor running_sum(const Tensor& x, int dimension, DType type);
/// x.softmax(dim), or its logarithm, over any dimension.
Tensor softmax_over(const Tensor& x, int dimension, DType type, bool logarithm);
/// torch._softmax_backward_data(gradient, result, dim, type): what softmax's node computes of a result, by itself; no gradient.
Tensor softmax_gradient(const Tensor& gradient, const Tensor& result, int dimension, DType type);
/// x.norm(2, dimensions), torch.linalg.vector_norm.
Tensor norm_of(const Tensor& x, const std::vector<int>& dimensions, bool keep);
/// x.var(dimensions), or its root.
Tensor variance(const Tensor& x, const std::vector<int>& dimensions, bool keep, bool root);
/// x.logsumexp(dimensions).
Tensor log_sum_exp(const Tensor& x, const std::vector<int>& dimensions, bool keep);

}  // namespace plimsoll::program

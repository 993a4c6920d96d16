/// Top-k as routers of experts ask for it.
#pragma once

#include "program/ops/ops.hpp"

namespace plimsoll::program {

/// torch.max(x, dim=-1, keepdim=True): one reduction, of pairs of a value and its place.
TopK largest_of_rows(const Tensor& x);
/// torch.topk(x, k, sorted=False): top_k without the sort of what was chosen.
TopK unsorted_top_k(const Tensor& x, std::int64_t k);

/// F.one_hot(indices, classes): [*indices, classes] in 64-bit integers.
Tensor one_hot(const Tensor& indices, std::int64_t classes);
/// mask.nonzero() of a mask with `count` true elements, for which the host waits: [dimensions, count] in 64-bit integers, the transpose of
/// what torch answers.
Tensor nonzero(const Tensor& mask, std::int64_t count);
/// x[rows, columns] of two vectors of indices.
Tensor index_pairs(const Tensor& x, const Tensor& rows, const Tensor& columns);
/// x.index_add_(0, indices, rows): the result has x's storage.
Tensor index_add_into(const Tensor& x, const Tensor& indices, const Tensor& rows);

}  // namespace plimsoll::program

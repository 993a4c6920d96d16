/// Top-k as routers of experts ask for it.
#pragma once

#include "program/ops/ops.hpp"

namespace plimsoll::program {

/// torch.topk(x, k, sorted=False): top_k without the sort of what was chosen.
TopK unsorted_top_k(const Tensor& x, std::int64_t k);

}  // namespace plimsoll::program

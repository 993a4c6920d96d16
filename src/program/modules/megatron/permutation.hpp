/// permute, unpermute and sort_chunks_by_idxs as Megatron-core runs them without moe_permute_fusion, operator by operator: the masks are
/// searched for what they mark, and each time the host waits to learn how much that is.
/// Source: megatron/core/transformer/moe/{moe_utils,token_dispatcher}.py of Megatron-core 0.15.
#pragma once

#include <cstdint>

#include "program/modules/megatron/te_experts.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// permute: rows [tokens, hidden] and their probabilities [tokens, experts], copied for every mark of `map` [tokens, experts], of which
/// there are `marks`; `places` is what the way back needs.
TePermuted permute_by_map(const Tensor& rows, const Tensor& probabilities, const Tensor& map, std::int64_t marks);

/// unpermute: zeros.scatter_add_.
Tensor unpermute_by_order(const Tensor& rows, const Tensor& order, std::int64_t tokens);

/// sort_chunks_by_idxs: [outer, inner] chunks of equally many rows in the order [inner, outer].
Tensor swap_chunks(const Tensor& rows, std::int64_t outer, std::int64_t inner);

/// _DeepepManager._indices_to_multihot: the chosen experts of each row, [rows, top_k], as marks of all experts here.
struct Multihot {
  Tensor map, probabilities;  ///< [rows, experts]
};
Multihot indices_to_multihot(const Tensor& chosen, const Tensor& probabilities, std::int64_t rows, std::int64_t experts,
                             std::int64_t marks);

}  // namespace plimsoll::program

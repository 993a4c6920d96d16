// Readers of kernels by family. Each takes a demangled name and answers nothing where the kernel is not of its family, or where name, grid
// and kept arguments do not tell its shape.
#pragma once

#include <optional>
#include <string_view>

#include "rehearse/kernel_names.hpp"

namespace plimsoll::rehearse {

/// The whole number that a text begins with.
std::optional<std::int64_t> leading_number(std::string_view text);
/// Threads of a launch, all blocks together; bounded, whatever a record says.
std::int64_t threads_of(const Launch& launch);
/// blocks[0] · blocks[1] · blocks[2], bounded.
std::int64_t blocks_of(const Launch& launch);

/// TensorIterator's elementwise kernels, dropout, generators of random numbers, cat.
std::optional<Kernel> read_pointwise(std::string_view name, const Launch& launch, int per_thread);
/// at::native::reduce_kernel.
std::optional<Kernel> read_reduction(std::string_view name, const Launch& launch);
/// Softmax and norms, whole rows at a time.
std::optional<Kernel> read_row_wise(std::string_view name, const Launch& launch);
/// Embeddings, index_select, nll_loss, scans.
std::optional<Kernel> read_gather(std::string_view name, const Launch& launch);
/// FlashAttention-2 and memory-efficient attention.
std::optional<Kernel> read_attention(std::string_view name, const Launch& launch);
/// multi_tensor_apply, _chunk_cat and split_with_sizes_copy.
std::optional<Kernel> read_multi_tensor(std::string_view name, const Launch& launch);

}  // namespace plimsoll::rehearse

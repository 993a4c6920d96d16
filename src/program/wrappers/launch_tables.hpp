/// The tables that PyTorch's fused copies of many tensors read on the device: made on the host for every launch, copied there, and freed
/// behind it (pack_vecs of ATen/native/cuda/TensorShape.cu).
#pragma once

#include <cstdint>
#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// split_with_sizes_copy_out_cuda: `ranks` chunks of each tensor, `chunk_bytes` of one, are copied out of what was gathered.
Tensor copy_out_table(Tape& tape, const std::vector<std::int64_t>& chunk_bytes, std::int64_t ranks);
/// _chunk_cat_out_cuda: the tensors' chunks of one rank, `chunk_bytes` of the result each, are put side by side.
Tensor chunk_cat_table(Tape& tape, const std::vector<std::int64_t>& chunk_bytes);

}  // namespace plimsoll::program

// How frameworks lay parameters and gradients out over the ranks of a data-parallel group, in elements: buckets, padded shards, buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/model.hpp"

namespace plimsoll::framework {

/// Bytes of the gradient buckets of torch DDP. Tensors come in the order in which gradients arrive (reverse registration) and go in
/// whole; a bucket closes once it reaches its limit: 1 MiB for the first, then bucket_cap_mb (torch/nn/parallel/distributed.py).
std::vector<std::int64_t> ddp_buckets(const std::vector<std::int64_t>& registered_bytes, std::int64_t bucket_cap = 25LL << 20,
                                      std::int64_t first_bucket = 1LL << 20);

/// Rows of dim 0 that every rank stores under FSDP2: ceil(rows / ranks), whatever its true share is.
std::int64_t fsdp2_padded_rows(std::int64_t rows, std::int64_t ranks);
/// Rows that `rank` truly owns (torch.chunk): the last ranks may own fewer, or none.
std::int64_t fsdp2_owned_rows(std::int64_t rows, std::int64_t ranks, std::int64_t rank);
/// Elements of the padded shard that every rank stores of a tensor.
std::int64_t fsdp2_shard_elements(const ParameterTensor& tensor, std::int64_t ranks);

/// Elements of a rank's shard of one FSDP1 unit: all its tensors flattened, padded to the number of ranks.
std::int64_t fsdp1_shard_elements(const std::vector<std::int64_t>& unit_elements, std::int64_t ranks);

/// Megatron's contiguous parameter and gradient buffer (param_and_grad_buffer.py).
struct MegatronBuffer {
  struct Range {
    std::int64_t begin, end;
  };
  std::vector<Range> parameters;  ///< in registration order; without their padding
  std::vector<Range> buckets;     ///< in the order of the buffer: reverse registration
  std::int64_t elements() const { return buckets.empty() ? 0 : buckets.back().end; }
};
struct MegatronBufferOptions {
  bool distributed_optimizer = false;  ///< pads starts to 64 elements and buckets to lcm(ranks, 128)
  std::int64_t ranks = 1;              ///< data-parallel × context-parallel; of expert parameters the expert-data-parallel ones
  std::int64_t bucket_size = 0;        ///< elements at which a bucket closes; 0: one bucket
  bool pad_for_high_nccl_busbw = false;
};
/// `elements` in registration order; `own_bucket` (by index, may be empty) marks parameters with a bucket of their own (a shared
/// embedding).
MegatronBuffer megatron_buffer(const std::vector<std::int64_t>& elements, const MegatronBufferOptions& options,
                               const std::vector<bool>& own_bucket = {});
/// Megatron's bucket size where none is given: max(40,000,000, 1,000,000 · ranks) elements.
std::int64_t megatron_bucket_size(std::int64_t ranks);

/// Elements of the gradients that DeepSpeed stage 2 keeps on `rank` (contiguous_gradients): of every parameter that touches the rank's
/// partition the whole. The flat buffer is padded to 2 · ranks elements.
std::int64_t zero2_kept_gradients(const std::vector<std::int64_t>& elements, std::int64_t ranks, std::int64_t rank);

/// The tensor-parallel rank's elements of a tensor: rows, columns or vocabulary cut; kv heads fewer than ranks are the caller's to expand.
/// A vocabulary is padded to a multiple of divisible_by · ranks rows, as Megatron does; divisible_by 1 pads to the ranks alone.
std::int64_t tensor_parallel_elements(const ParameterTensor& tensor, std::int64_t ranks, std::int64_t divisible_by = 128);

}  // namespace plimsoll::framework

// torch.distributed._broadcast_coalesced: how wrappers make the states of all ranks those of the first.
#pragma once

#include <cstdint>
#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// Broadcasts tensors of the device in buckets that are full at `bucket_bytes`, each of one type; several tensors of a bucket go by way of
/// a flat copy, and two buckets are under way at a time. Source: torch/csrc/distributed/c10d/comm.cpp, broadcast_coalesced, and
/// reducer.cpp, compute_bucket_assignment_by_size, of PyTorch 2.15.
void broadcast_coalesced(Tape& tape, const std::vector<Tensor>& tensors, std::int64_t bucket_bytes);

}  // namespace plimsoll::program

/// Clipping of gradients by the norm of all of them.
#pragma once

#include <optional>
#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// torch.nn.utils.clip_grad_norm_(parameters, max_norm), foreach. Gradients that are shards (DTensors of fully_shard) have norms of type
/// _NormPartial: their squares are summed over `shards`, the group that holds them.
void clip_grad_norm(Tape& tape, const std::vector<Tensor>& parameters, std::optional<Group> shards = {});

/// torch.stack of norms of one number each.
Tensor stacked_norms(Tape& tape, const std::vector<Tensor>& norms, DType type);

/// min(max_norm / (norm + 1e-6), 1): a sum, a reciprocal, a product and the clamp.
Tensor clipping_coefficient(Tape& tape, const Tensor& norm);

/// FullyShardedDataParallel.clip_grad_norm_: gradient by gradient, in fp32, the square of the rank's norm summed over the sharding group.
void clip_flat_grad_norm(Tape& tape, const std::vector<Tensor>& parameters);

}  // namespace plimsoll::program

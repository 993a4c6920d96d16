/// torch.utils.checkpoint: activations recomputed in backward, by the real mechanisms.
#pragma once

#include <functional>
#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// What a checkpointed region runs: a function of its tensor arguments.
using Region = std::function<Tensor(const std::vector<Tensor>& arguments)>;

/// checkpoint(region, *arguments, use_reentrant=False): saved tensors are replaced by holders; the first one that backward needs runs the
/// region again, with grad mode on, until the last saved tensor exists again (early stop).
Tensor checkpoint(Tape& tape, const Region& region, const std::vector<Tensor>& arguments);

/// checkpoint(region, *arguments, use_reentrant=True): forward under no_grad; backward runs the region again on detached arguments and
/// a backward of its own.
Tensor checkpoint_reentrant(Tape& tape, const Region& region, const std::vector<Tensor>& arguments);

}  // namespace plimsoll::program

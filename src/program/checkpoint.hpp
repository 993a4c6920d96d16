/// torch.utils.checkpoint: activations recomputed in backward, by the real mechanisms.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// What a checkpointed region runs: a function of its tensor arguments.
using Region = std::function<Tensor(const std::vector<Tensor>& arguments)>;
/// The same of several results; arguments and results may be undefined (None).
using TupleRegion = std::function<std::vector<Tensor>(const std::vector<Tensor>& arguments)>;

/// Whether the output of one call of an operator is kept (torch.utils.checkpoint's policy function). Has its own counters: one per region.
class SelectivePolicy {
 public:
  virtual ~SelectivePolicy() = default;
  virtual bool keeps(const char* name) = 0;
};

struct CheckpointOptions {
  bool early_stop = true;  ///< the recomputation ends with the last tensor that was saved
  /// A policy of the region's own: selective checkpointing. Empty: everything is computed again.
  std::function<std::unique_ptr<SelectivePolicy>()> policy = {};
};

/// checkpoint(region, *arguments, use_reentrant=False): saved tensors are replaced by holders; the first one that backward needs runs the
/// region again, with grad mode on.
Tensor checkpoint(Tape& tape, const Region& region, const std::vector<Tensor>& arguments, const CheckpointOptions& options = {});
std::vector<Tensor> checkpoint(Tape& tape, const TupleRegion& region, const std::vector<Tensor>& arguments,
                               const CheckpointOptions& options = {});

/// checkpoint(region, *arguments, use_reentrant=True): forward under no_grad; backward runs the region again on detached arguments and
/// a backward of its own.
Tensor checkpoint_reentrant(Tape& tape, const Region& region, const std::vector<Tensor>& arguments);
/// Results whose gradient never arrives get zeros (torch.autograd.Function materializes gradients).
std::vector<Tensor> checkpoint_reentrant(Tape& tape, const TupleRegion& region, const std::vector<Tensor>& arguments);

}  // namespace plimsoll::program

/// torch.distributed.fsdp.fully_shard (FSDP2), by its own hooks. Source: torch/distributed/fsdp/_fully_shard of PyTorch 2.15.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

struct Fsdp2Options {
  std::int64_t shard = 1;             ///< ranks of the sharding group
  std::int64_t replicate = 1;         ///< ranks of the replication group (HSDP)
  std::optional<DType> param_dtype;   ///< of the gathered parameters; none: the parameters' own
  std::optional<DType> reduce_dtype;  ///< of the gradient reduction; none: that of the gradients
  bool cast_forward_inputs = true;
  bool reshard_after_forward = true;  ///< of all units but the root, which is never resharded after forward by default
  bool reshard_root = false;          ///< reshard_after_forward=True said for the root explicitly
  bool offload_to_host = false;       ///< CPUOffloadPolicy: shards, gradients and states in pinned host memory
};

/// One call of fully_shard: modules whose parameters are gathered, resharded and reduced together.
class Fsdp2Unit;

/// A sharded model: the modules of `units` (each a list of modules that share a unit; the root last) are wrapped in order.
class Fsdp2 {
 public:
  Fsdp2(Tape& tape, Module& root, const std::vector<std::vector<Module*>>& units, const Fsdp2Options& options);
  ~Fsdp2();
  Fsdp2(const Fsdp2&) = delete;
  Fsdp2& operator=(const Fsdp2&) = delete;

  /// The shards that the optimizer sees, in registration order of the model; a gradient is in tensor.grad() after backward.
  std::vector<Tensor> shards() const;
  /// model.to_empty(device): allocates the shards, and buffers, in the order of Module._apply.
  void materialize();
  /// set_requires_gradient_sync: whether backward reduces; false during all micro-batches but the last.
  void set_requires_gradient_sync(bool yes);

  /// set_reshard_after_backward of all units.
  void set_reshard_after_backward(bool yes);
  /// set_manual_backward_finalization: the end of a backward pass reduces nothing; finalize_backward() does.
  void set_manual_finalization(bool yes) { manual_finalization_ = yes; }
  void finalize_backward();

  // The same of one unit, named by a module of it (FSDPModule's methods).
  void set_requires_gradient_sync(const Module& module, bool yes);
  void set_reshard_after_forward(const Module& module, bool yes);
  void set_reshard_after_backward(const Module& module, bool yes);
  /// Gathers the unit at once, on the current stream; nothing when it is gathered.
  void unshard(const Module& module);
  void reshard(const Module& module);
  /// The weights of two modules are one tensor while sharded (tied behind fully_shard): `one` takes the shard of `other`.
  void share_shard(const Module& one, const Module& other);

 private:
  friend class Fsdp2Unit;

  struct ReduceState {
    Tensor input;  ///< kept until the next unit's reduction, so that its memory is not used again too early
  };

  Fsdp2Unit& unit_of(const Module& module) const;
  void root_post_backward();
  void end_iteration();
  void queue_root_post_backward();

  Tape& tape_;
  Module& root_;
  Fsdp2Options options_;
  std::vector<std::unique_ptr<Fsdp2Unit>> units_;
  std::vector<Fsdp2Unit*> states_in_module_order_;  ///< all_states: the root first
  std::vector<Fsdp2Unit*> post_forward_order_;
  Tensor deferred_all_gather_;  ///< all_gather_state: freed at the next unit's copy-out
  std::deque<ReduceState> reduce_states_;
  StreamId copy_in_stream_, gather_stream_, reduce_stream_, replicate_stream_;
  bool callback_queued_ = false;
  bool manual_finalization_ = false;
  Fsdp2Unit* forward_root_ = nullptr;  ///< iter_forward_root: the unit whose forward is the outermost
};

}  // namespace plimsoll::program

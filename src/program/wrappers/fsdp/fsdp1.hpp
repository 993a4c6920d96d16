/// torch.distributed.fsdp.FullyShardedDataParallel (FSDP1), by its own hooks. Sources: torch/distributed/fsdp/_runtime_utils.py and
/// _flat_param.py of PyTorch 2.15.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

struct Fsdp1Settings {
  std::int64_t world = 1;             ///< ranks over which gradients are averaged
  std::int64_t shard = 1;             ///< ranks of the sharding group
  std::int64_t replicate = 1;         ///< ranks that hold the same shard (HYBRID_SHARD)
  std::int64_t rank = 0;              ///< whose pieces of the original parameters
  bool sharded = true;                ///< false: NO_SHARD, every rank holds all parameters and all-reduces
  std::optional<DType> param_dtype;   ///< of the gathered parameters, inputs and buffers; none: their own
  bool casts_buffers = true;          ///< buffers take param_dtype too; else they stay as they are
  std::optional<DType> reduce_dtype;  ///< of the gradient reduction; none: that of the gathered parameters
  bool reshard_after_forward = true;  ///< FULL_SHARD, HYBRID_SHARD; false: SHARD_GRAD_OP, _HYBRID_SHARD_ZERO2
  bool use_orig_params = true;        ///< the optimizer sees the rank's pieces of the original parameters
  bool forward_prefetch = false;      ///< from the second step on the next unit is gathered while one computes
  FsdpOptions::Prefetch backward_prefetch = FsdpOptions::Prefetch::pre;  ///< the class's own
  bool sync_module_states = false;                                       ///< units take the first rank's states when they are made
  bool offload_to_host = false;  ///< CPUOffload: shards, reduced gradients and states in pinned host memory
  bool loaded_on_device = false;  ///< the whole model lies on the device before it is wrapped
};

class Fsdp1Unit;

/// A wrapped model: each module of `units` and the root hold their parameters in one flat, sharded tensor.
class Fsdp1 {
 public:
  Fsdp1(Tape& tape, Module& root, const std::vector<Module*>& units, const Fsdp1Settings& settings);
  ~Fsdp1();
  Fsdp1(const Fsdp1&) = delete;
  Fsdp1& operator=(const Fsdp1&) = delete;

  /// Allocates each unit's parameters, flattens them and keeps the rank's shard.
  void materialize();
  /// What the optimizer sees: the rank's shards, or its pieces of the original parameters.
  std::vector<Tensor> shards() const;
  /// no_sync: without it gradients stay whole, in the type of the gathered parameters.
  void set_requires_gradient_sync(bool yes) { synchronize_ = yes; }
  /// FullyShardedDataParallel.clip_grad_norm_: of shards the norms one by one, in fp32, and their sum of squares over the ranks.
  void clip_grad_norm(const std::vector<Tensor>& parameters);
  /// The shards go to the host, or come back: flat_param_to() of every unit, without gradients.
  void rest();
  void fetch();
  /// After zero_grad(): flat gradients whose pieces the optimizer saw die at the start of the next forward; nothing lies between.
  void after_step();

 private:
  friend class Fsdp1Unit;
  bool wraps(const Module& module) const { return wrapped_.count(&module) > 0; }
  std::int64_t predivision() const;
  bool divides_again() const { return settings_.world > predivision(); }  ///< by what the division before the reduction left
  void initialize();
  void begin_forward();
  void finish_backward();

  Tape& tape_;
  Module& root_;
  Fsdp1Settings settings_;
  std::vector<std::unique_ptr<Fsdp1Unit>> units_;  ///< in order of wrapping; the root last
  std::unordered_map<const Module*, Fsdp1Unit*> wrapped_;
  std::vector<Fsdp1Unit*> pre_forward_order_;      ///< of the first forward
  std::vector<Fsdp1Unit*> post_forward_order_;
  StreamId pre_unshard_stream_, unshard_stream_, reduce_stream_, replicate_stream_;
  std::unordered_set<const ModuleBuffer*> synced_;  ///< buffers that a unit has broadcast
  Tensor zero_scalar_;                              ///< the norm of ranks without gradients, made by the first clipping
  bool initialized_ = false, callback_queued_ = false, synchronize_ = true;
};

}  // namespace plimsoll::program

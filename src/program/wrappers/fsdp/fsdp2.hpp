/// torch.distributed.fsdp.fully_shard (FSDP2), by its own hooks. Source: torch/distributed/fsdp/_fully_shard of PyTorch 2.15.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// The ranks that parameters are cut over, and those that hold the same cut.
struct Fsdp2Mesh {
  std::int64_t shard = 1;           ///< ranks of the sharding group
  std::int64_t replicate = 1;       ///< ranks of the replication group (HSDP)
  Group group = Group::data_shard;  ///< that shards
  std::int64_t rank = 0;            ///< whose step is recorded, in the sharding group
  friend bool operator==(const Fsdp2Mesh& a, const Fsdp2Mesh& b) {
    return a.shard == b.shard && a.replicate == b.replicate && a.group == b.group && a.rank == b.rank;
  }
  /// What every rank gathers and reduces of `size` rows: its own, and padding up to those of the first rank.
  std::int64_t padded_rows(std::int64_t size) const { return ceil_div(size, shard); }
  /// Of `size` rows, those of `rank` (torch.chunk): the last ranks hold fewer or none.
  std::int64_t own_rows(std::int64_t size) const { return std::clamp<std::int64_t>(size - rank * padded_rows(size), 0, padded_rows(size)); }
};

/// The mesh of plain data parallelism: the sharding groups lie side by side within a replica.
inline Fsdp2Mesh data_mesh(const Strategy& s) { return {s.dp_shard, s.dp_replicate, Group::data_shard, s.rank.value_or(0) % s.dp_shard}; }

/// Where a parameter goes (shard_placement_fn).
struct Fsdp2Placement {
  int dimension = 0;  ///< that is cut
  Fsdp2Mesh mesh;
};

struct Fsdp2Options {
  Fsdp2Mesh mesh;                     ///< of every parameter that `placement` does not put elsewhere
  std::optional<DType> param_dtype;   ///< of the gathered parameters; none: the parameters' own
  std::optional<DType> reduce_dtype;  ///< of the gradient reduction; none: that of the gradients
  std::optional<DType> output_dtype;  ///< of what floats among a unit's outputs; none: as they are
  bool cast_forward_inputs = true;
  bool reshard_after_forward = true;  ///< of all units but the root, which is never resharded after forward by default
  bool reshard_root = false;          ///< reshard_after_forward=True said for the root explicitly
  std::int64_t reshard_to = 0;   ///< reshard_after_forward=int: ranks that keep the gathered parameters in parts after forward; 0: none
  bool buffers_on_host = false;  ///< materialize() leaves the modules' buffers on the host
  bool offload_to_host = false;  ///< CPUOffloadPolicy: shards, gradients and states in pinned host memory
  bool leaves_integers = false;  ///< ignored_params: those of integers stay whole on every rank
  std::function<Fsdp2Placement(const Parameter&)> placement;  ///< none: every parameter over `mesh`, first dimension cut

  Fsdp2Placement placement_of(const Parameter& parameter) const { return placement ? placement(parameter) : Fsdp2Placement{0, mesh}; }
};

/// One call of fully_shard: modules that are gathered, resharded and reduced together, in one group per mesh of their parameters.
class Fsdp2Unit;
class Fsdp2Group;

/// A sharded model: the modules of `units` (each a list of modules that share a unit; the root last) are wrapped in order.
class Fsdp2 {
 public:
  Fsdp2(Tape& tape, Module& root, const std::vector<std::vector<Module*>>& units, const Fsdp2Options& options);
  ~Fsdp2();
  Fsdp2(const Fsdp2&) = delete;
  Fsdp2& operator=(const Fsdp2&) = delete;

  const Fsdp2Options& options() const { return options_; }
  /// The shards that the optimizer sees, in registration order of the model; a gradient is in tensor.grad() after backward.
  std::vector<Tensor> shards() const;
  /// model.to_empty(device): allocates the shards, and buffers, in the order of Module._apply.
  void materialize();
  /// Accelerate's fsdp2_load_full_state_dict: parameter by parameter in the order of the state dict, whole on the device, then its shard; a
  /// tied parameter comes twice and tie_weights() drops its second shard. Buffers come last.
  void load_full_state_dict();
  /// A model that lies on the device whole is sharded unit by unit; what it was lives until the end (Accelerate keeps its state dict).
  void shard_loaded();
  /// A model that lies on the host: each unit's parameters come whole, are cut and die before the next unit's come (_move_states_to_device).
  void shard_from_host();
  /// A model that lies on the device whole is sharded unit by unit; what a unit's parameters were dies when all of them are cut.
  void shard_in_place();
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
  /// set_modules_to_forward_prefetch and set_modules_to_backward_prefetch, of one unit each.
  void prefetch_in_forward(const Module& module, const Module& target);
  void prefetch_in_backward(const Module& module, const Module& target);
  /// Gathers the unit at once, on the current stream; nothing when it is gathered.
  void unshard(const Module& module);
  void reshard(const Module& module);
  /// The same of all units at once: their gathers on the current stream, later what waits for them.
  void unshard_all();
  void wait_for_unshard_all();
  void reshard_all();
  /// The gathered weights of the units, in the order of the model's parameters: leaves of the graph.
  std::vector<Tensor> gathered() const;
  /// The weights of two modules are one tensor while sharded (tied behind fully_shard): `one` takes the shard of `other`.
  void share_shard(const Module& one, const Module& other);

 private:
  friend class Fsdp2Unit;
  friend class Fsdp2Group;

  struct ReduceState {
    Tensor input;  ///< kept until the next unit's reduction, so that its memory is not used again too early
  };

  /// Two weights that were tied behind fully_shard.
  struct TiedShard {
    Tensor own;     ///< of the weight that took the other's shard: what FSDP keeps for it
    Tensor shared;  ///< the shard that is both weights'
    std::int64_t padded_elements;
    bool reset = false;
  };
  static void cut_up(Fsdp2Group& group, std::vector<Tensor>& whole);
  void reset_tied_shards();
  Fsdp2Unit& unit_of(const Module& module) const;
  const std::vector<Fsdp2Group*>& holders_of(const Parameter& parameter) const;
  bool is_left_out(const Fsdp2Unit& unit) const;
  void root_post_backward();
  void end_iteration();
  void queue_root_post_backward();
  void gather_behind_compute();
  void defer_all_gather(Tensor gathered);
  void release_deferred_all_gather();

  Tape& tape_;
  Module& root_;
  Fsdp2Options options_;
  std::vector<std::unique_ptr<Fsdp2Unit>> units_;
  std::vector<Fsdp2Group*> groups_;                 ///< of all units, in the order of wrapping
  /// The groups that shard each parameter, in their order.
  std::unordered_map<const Parameter*, std::vector<Fsdp2Group*>> holders_;
  std::vector<Fsdp2Unit*> states_in_module_order_;  ///< all_states: the root first
  std::vector<Fsdp2Group*> post_forward_order_;
  std::vector<TiedShard> tied_shards_;
  Tensor deferred_all_gather_;  ///< all_gather_state: freed at the next unit's copy-out
  EventId copied_out_;          ///< behind the deferred one's copy-out
  std::deque<ReduceState> reduce_states_;
  StreamId copy_in_stream_, gather_stream_, reduce_stream_, replicate_stream_;
  bool callback_queued_ = false;
  bool manual_finalization_ = false;
  Fsdp2Unit* forward_root_ = nullptr;  ///< iter_forward_root: the unit whose forward is the outermost
};

}  // namespace plimsoll::program

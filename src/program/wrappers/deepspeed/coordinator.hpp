/// ZeRO-3's parameters: who is gathered when, and for how long. Sources: deepspeed/runtime/zero/partitioned_param_coordinator.py,
/// parameter_offload.py, partition_parameters.py.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/wrappers/deepspeed/deepspeed.hpp"

namespace plimsoll::program {

struct ZeroGather;

/// A parameter of which every rank stores an equal shard. While it is gathered its tensor's storage is the whole parameter. Its type is its
/// own: adapters put in behind zero.Init keep theirs.
struct ZeroParameter {
  enum class Status { absent, in_flight, available };
  std::shared_ptr<Parameter> slot;
  Tensor leaf;
  Tensor resident;   ///< where the rank's shard lies on the device: a trained one's in the flat tensor of them all
  Tensor secondary;  ///< hpZ: a larger shard that the ranks of a node gather from, from the first release to the end of the step
  std::int64_t id = 0, elements = 0, shard = 0;
  bool persistent = false;  ///< small: kept from one optimizer step to the next
  Status status = Status::absent;
  std::vector<const Module*> users;                                     ///< ds_active_sub_modules
  std::shared_ptr<ZeroGather> gather;                                   ///< its entry of the in-flight registry
  std::int64_t fetched_for = std::numeric_limits<std::int64_t>::min();  ///< the last use that a fetch has seen
};

/// PartitionedParameterCoordinator with the module hooks of DeepSpeedZeRoOffload. A forward and what follows until the next are recorded;
/// from then on parameters of later modules are gathered ahead of their use, as long as passes go on as the recorded one did.
class ZeroCoordinator {
 public:
  ZeroCoordinator(Tape& tape, Module& root, const DeepSpeedSettings& settings);

  /// deepspeed.zero.Init, or partitioning a model that stands on the device; then the trained shards side by side.
  void partition();
  /// param.all_gather(); param.partition() of every parameter, as the gradient hooks are made.
  void touch_all();
  /// The hooks of all modules.
  void install_hooks();

  /// release_and_reset_all: before the optimizer step.
  void release_all();
  /// release_backward_leftovers: modules whose inputs take no gradient.
  void release_backward_leftovers();
  /// Gathers the persistent parameters again after the optimizer step; the shards within nodes are out of date.
  void gather_persistent();

  std::vector<std::unique_ptr<ZeroParameter>> parameters;  ///< in the order of the model
  std::int64_t shard_elements() const;                     ///< of all of them
  std::int64_t trained_elements() const;                   ///< of the shards of those that are trained
  DType type() const { return type_; }                     ///< of the model
  DType trained_type() const;

 private:
  struct Use {
    ZeroParameter* parameter;
    std::int64_t step;
  };
  struct ModuleState {
    std::vector<ZeroParameter*> parameters;  ///< its own, of a leaf module all below it, and external ones, by id
    std::vector<ZeroParameter*>
        recomputed;                ///< ds_recompute_parameters: frozen ones that a recomputation gathered, kept until its backward ends
    int pre_backward_pending = 0;  ///< applied_pre_backward_ref_cnt
    int inputs_remaining = 0;      ///< ds_grads_remaining
  };
  enum class Trace { invalid, recording, complete };

  bool is_put_in_later(const Parameter& slot) const { return settings_.adapters && slot.trainable; }
  void partition_at_construction(Module& module, std::vector<Tensor>& duplicates);
  void partition_adapters();
  void partition_materialized();
  void defragment();
  void add_parameter(const std::shared_ptr<Parameter>& slot);
  void mark_persistent_parameters();
  Tensor new_shard(const ZeroParameter& parameter);
  Tensor new_secondary(const ZeroParameter& parameter);
  void keep_secondary(ZeroParameter& parameter);
  void attach_below(Module& module);
  void attach(Module& module, const std::vector<std::shared_ptr<Parameter>>& slots);
  void read_outside(ZeroParameter& parameter);
  void gather_at_once(ZeroParameter& parameter);

  void reset_step();
  void release_in_flight();
  void forget_fetches();
  void check_trace(const Module& module);
  void construct_parameter_trace();
  void fetch(const Module& module, bool forward);
  void keep_for_backward(ZeroParameter& parameter);
  void prefetch(ModuleState& state);
  std::int64_t prefetch_size() const;
  void gather(const std::vector<ZeroParameter*>& wanted);
  void launch_gather(const std::vector<ZeroParameter*>& absent);
  void gather_one(ZeroParameter& parameter, const std::shared_ptr<ZeroGather>& handle);
  void gather_coalesced(const std::shared_ptr<ZeroGather>& handle);
  void gather_quantized(const std::shared_ptr<ZeroGather>& handle);
  void dequantize(ZeroGather& handle);
  void all_reduce_coalesced(const std::vector<ZeroParameter*>& absent);
  EventId take_event();
  void all_gather(std::int64_t bytes, DType type, const std::shared_ptr<ZeroGather>& handle);
  void wait(ZeroParameter& parameter);
  void release_module(const Module& module, bool forward);
  std::vector<ZeroParameter*>& releasable(const Module& module, std::int64_t step);
  void release(ZeroParameter& parameter);
  void set_data(ZeroParameter& parameter, const Tensor& data);
  Tensor shard_on_device(const ZeroParameter& parameter);

  void add_pre_backward(const Module& module, std::vector<Tensor*>& outputs);
  void add_post_backward(Module& module, std::vector<Tensor*>& inputs);

  Tape& tape_;
  Module& root_;
  DeepSpeedSettings settings_;
  DType type_ = DType::bf16;
  StreamId gather_stream_, collective_stream_;  ///< DeepSpeed's own, and NCCL's beside it
  std::vector<EventId> free_events_;
  std::map<DType, Tensor> nothing_;  ///< the data of a parameter that is not gathered
  std::unordered_map<const Module*, ModuleState> states_;

  Trace trace_ = Trace::invalid;
  std::vector<const Module*> module_order_;
  std::vector<Use> parameter_order_;
  std::deque<Use> queue_;
  std::vector<ZeroParameter*> in_flight_;
  std::weak_ptr<ZeroGather> launched_;  ///< the latest
  std::vector<const Module*> backward_modules_;
  std::vector<const Module*> running_;  ///< modules whose forward runs, within each other (FWD_MODULE_STACK)
  std::map<std::pair<const Module*, std::int64_t>, std::vector<ZeroParameter*>> releasable_;
  std::int64_t step_ = 0, available_ = 0;
};

}  // namespace plimsoll::program

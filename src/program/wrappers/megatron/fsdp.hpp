/// Megatron-FSDP: parameters, gradients and optimizer states of one model chunk cut over the data-parallel ranks, layer by layer.
/// Sources: megatron/core/distributed/fsdp/mcore_fsdp_adapter.py and fsdp/src/megatron_fsdp of Megatron-core 0.16.1.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "program/module.hpp"
#include "program/tape.hpp"
#include "program/wrappers/megatron/data_parallel.hpp"
#include "program/wrappers/megatron/fsdp_layout.hpp"
#include "program/wrappers/megatron/fsdp_modules.hpp"
#include "program/wrappers/megatron/fsdp_pool.hpp"
#include "program/wrappers/megatron/optimizer.hpp"

namespace plimsoll::program {

struct MegatronFsdpOptions {
  MegatronOptions::Sharding sharding = MegatronOptions::Sharding::optim_grads_params;
  std::int64_t ranks = 1;              ///< data-parallel × context-parallel
  std::int64_t expert_ranks = 1;       ///< that share the experts' states
  std::int64_t rank = 0;               ///< whose share this rank keeps
  std::int64_t bucket_size = 0;        ///< elements at which a bucket outside of the layers closes; 0: never
  std::int64_t communication_unit = 0;  ///< suggested_communication_unit_size; 0: the framework's
  bool overlap_grad_reduce = false, overlap_param_gather = false;  ///< as asked for; sharding of gradients and of parameters imply them
  bool double_buffer = false;
  DType grad_dtype = DType::fp32;
  std::function<bool(const Tensor&)> already_added;  ///< whether a weight's gradient is in main_grad when it arrives (grad_added_to_main_grad)
};

/// The wrapper of one model chunk.
class MegatronFsdp : public MegatronDataParallel {
 public:
  /// Moves the parameters into buffers that are allocated on `side` and installs the hooks.
  MegatronFsdp(Tape& tape, const MegatronFsdpModules& modules, const MegatronFsdpOptions& options, StreamId side);

  void zero_grad_buffer() override;
  void set_synchronizing(bool yes) override { synchronizing_ = yes; }
  void finish_grad_sync() override;
  /// start_param_sync().
  void gather_parameters() override;
  std::int64_t gradient_elements(const Parameter& parameter) const override;
  DType gradient_type() const override { return DType::fp32; }

  /// What the optimizer is given: this rank's part of every parameter, in registration order. Their gradients are attached by
  /// finish_grad_sync.
  std::vector<MegatronMain> mains() const;

 private:
  using Sharding = MegatronOptions::Sharding;
  enum class Status { empty, communicating, ready };
  enum class Prefetch { none, forward, backward };

  /// A ParameterGroup with its DataParallelBuffers.
  struct Group {
    MegatronFsdpLayout layout;
    std::vector<std::size_t> together;  ///< groups of the same unit and kind: gathered and reduced in one call
    Tensor weights;                     ///< model_weight_buffer: this rank's share, or all
    Tensor gathered;                    ///< the bucket that a share is gathered into: `weights` where these are whole
    Tensor main_weights;                ///< main_weight_buffer, fp32
    Tensor gradients;                   ///< main_grad_buffer: a piece of the buffer of all groups
    Tensor whole_gradients;             ///< the bucket that gradients are collected in: `gradients` where these are whole, else born anew
    std::vector<MegatronMain> mains;    ///< of each item, what the optimizer sees; undefined where this rank has no part
    std::optional<std::size_t> pooled;  ///< its place among its layer's groups, where the layer takes turns in the pools' buffers
    bool shares_weights = false, shares_gradients = false;  ///< whether those buffers are this rank's share alone
    Status status = Status::empty;
    bool may_be_released = false;  ///< bucket_can_be_released
    std::size_t gradients_ready = 0;
    EventId gathered_event = 0, reduced_event = 0;
  };
  struct Place {
    std::size_t group, item;
  };

  bool shards_weights() const { return options_.sharding == Sharding::optim_grads_params; }
  bool shards_gradients() const { return shards_weights() || options_.sharding == Sharding::optim_grads; }
  bool shards_states() const { return options_.sharding != Sharding::no_shard; }
  bool overlaps_reductions() const { return options_.overlap_grad_reduce || shards_gradients(); }
  /// Whether a backward pass reduces what it is done with.
  bool reduces_now() const { return shards_gradients() || (options_.overlap_grad_reduce && synchronizing_); }
  bool overlaps_gathers() const { return options_.overlap_param_gather || shards_weights(); }

  // megatron_fsdp_buffers.cpp: ParamAndGradBuffer
  void make_groups(const MegatronFsdpModules& modules);
  void choose_pooled();
  void make_buffers();
  void set_weights(Group& group);
  void make_gradients();
  void make_mains();
  void attach_gradients();

  void install_hooks(const MegatronFsdpModules& modules);
  void hook_unit(Module& layer);
  void register_backward(Module& layer, std::vector<Tensor*>& tensors);
  void on_gradients_of(std::vector<Tensor*>& outputs, const std::function<void()>& action);
  void before_backward();
  void after_backward();
  std::vector<std::size_t> groups_of(Module& module, bool whole) const;

  // megatron_fsdp_pipelines.cpp: AllGatherPipeline
  void gather(std::vector<std::size_t> wanted, Prefetch prefetch, bool wait);
  void add_prefetched(std::vector<std::size_t>& wanted, Prefetch order) const;
  std::optional<std::size_t> next_group(const std::vector<std::size_t>& wanted, Prefetch order) const;
  void start_gather(std::size_t index);
  void fetch_bucket(std::size_t index);
  void free_bucket(std::size_t index);
  void wait_gathered(Group& group);
  void release(std::size_t index);
  void release_unused();
  void release_all();

  // GradReducePipeline
  void gradient_ready(const Place& place);
  void mark_ready(std::size_t index);
  void reduce(const std::vector<std::size_t>& together);
  void reduce_at_once();
  void wait_reduced(std::int64_t most_elements);
  void wait_first_reduced();
  void wait_for_buffers(const std::vector<std::size_t>& wanted);

  Tape& tape_;
  MegatronFsdpOptions options_;
  StreamId gather_stream_, reduce_stream_;
  std::int64_t under_way_ = 0;  ///< suggested_communication_unit_size: elements of gradients; of weights half of it
  std::vector<Group> groups_;
  MegatronFsdpPool weight_pool_, gradient_pool_;
  std::unordered_map<const Parameter*, Place> places_;
  std::vector<std::shared_ptr<Parameter>> parameters_;  ///< in registration order
  Tensor all_gradients_;
  std::unordered_set<const Module*> before_backward_;  ///< units in the training state PRE_BACKWARD
  std::vector<Module*> units_;
  std::deque<std::size_t> reducing_;                     ///< grad_reduce_queue
  bool synchronizing_ = true, in_backward_ = false;
};

}  // namespace plimsoll::program

/// The parameters of a fully_shard unit that are cut over the same ranks. Source: _fsdp_param.py, _fsdp_param_group.py and
/// _fsdp_collectives.py of torch/distributed/fsdp/_fully_shard, PyTorch 2.15.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "program/wrappers/fsdp/fsdp2.hpp"

namespace plimsoll::program {

/// FSDPParam: one parameter, its shard and its gathered form.
struct ShardedParameter {
  std::shared_ptr<Parameter> slot;
  int dimension = 0;                ///< that is cut over the ranks
  Dims shard_sizes;                 ///< of this rank
  std::int64_t shard_elements = 0;  ///< of every rank with its padding, which is gathered and reduced with it
  bool padded = true;               ///< the shard's storage has room for the padding
  Tensor shard;                     ///< what the optimizer steps
  Tensor gathered;                  ///< leaf of the compute type; its storage is freed while sharded
  Tensor kept;                      ///< a part of it, from its forward to its backward (reshard_after_forward=int)

  std::int64_t gathered_elements(std::int64_t ranks) const { return shard_elements * ranks; }
};

enum class TrainingState { idle, forward, pre_backward, post_backward };

/// FSDPParamGroup: the parameters of a unit that are cut over the same ranks; one all-gather, one reduce-scatter.
class Fsdp2Group {
 public:
  Fsdp2Group(Fsdp2& owner, const std::vector<Module*>& modules, const Fsdp2Mesh& mesh, bool is_root);

  void add(const std::shared_ptr<Parameter>& slot, int dimension);
  void materialize_shard(const Parameter* slot);
  Dims shard_sizes(const Parameter* slot) const;
  /// reset_sharded_param, when the unit's modules have been applied to: shards that are smaller than others' move to padded storages.
  void pad_shards();
  bool is_gathered() const { return gathered_; }
  void unshard();
  void wait_for_unshard();
  /// Gathers ahead of use, as if the group were in `pass`.
  void prefetch(TrainingState pass);
  void reshard();
  void pre_forward(std::vector<Tensor*>& tensors);
  void post_forward();
  void pre_backward(bool prefetches);
  void post_backward();
  void finish_iteration();
  /// The group's part of the end of a backward pass.
  void end_backward(bool manual);
  void finalize();

  TrainingState state = TrainingState::idle;
  std::vector<ShardedParameter> parameters;
  const Fsdp2Mesh mesh;
  bool reshard_after_forward;
  bool reshard_after_backward = true;
  bool reduce_gradients = true;
  bool last_of_unit = true;  ///< its reduction is the first of its unit in backward

 private:
  void prefetch_backward();
  void register_post_backward(std::vector<Tensor*>& tensors);
  std::vector<Tensor> gather_inputs();
  std::int64_t own_elements(const ShardedParameter& parameter) const;
  void copy_in(DType type);
  std::vector<Tensor> inputs_from_host();
  Tensor empty_gather_output(std::int64_t elements, std::int64_t ranks);
  void copy_out();
  void keep_part(ShardedParameter& parameter);
  bool has_parts() const { return static_cast<bool>(parameters.front().kept); }
  void cut_gradients(std::vector<std::pair<ShardedParameter*, Tensor>>& gradients);
  void reduce(std::vector<std::pair<ShardedParameter*, Tensor>>& gradients);
  void accumulate_shards(const std::vector<std::pair<ShardedParameter*, Tensor>>& gradients, const Tensor& reduced);
  void defer_widening(bool yes);
  void copy_alone();
  DType compute_type(const ShardedParameter& parameter) const;
  Tape& tape() const { return owner_.tape_; }

  Fsdp2& owner_;
  const std::vector<Module*>& modules_;
  bool pending_ = false;  ///< gradients wait for finalize_backward()
  bool gathered_ = false;
  Tensor gather_output_;       ///< all_gather_result: issued, not yet copied out
  Tensor reduce_output_kept_;  ///< all_reduce_state: HSDP keeps the reduce-type buffer until the group's next reduction
  std::vector<std::size_t> post_forward_indices_;
};

}  // namespace plimsoll::program

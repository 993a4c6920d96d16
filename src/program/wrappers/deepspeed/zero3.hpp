/// ZeRO stage 3. Source: deepspeed/runtime/zero/stage3.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "program/wrappers/deepspeed/coordinator.hpp"

namespace plimsoll::program {

/// Weights, gradients and states are sharded parameter by parameter; a gradient is reduce-scattered through a bucket that exists all the
/// time, into one flat buffer of the rank's gradients.
class ZeroStage3 final : public DeepSpeedOptimizer {
 public:
  /// `groups`: of the optimizer, parameters of `root`.
  ZeroStage3(Tape& tape, Module& root, const ParameterGroups& groups, const DeepSpeedSettings& settings);

  bool scales_loss() const override { return true; }
  void after_backward() override;
  void step() override;

 private:
  struct SubGroup {
    std::vector<ZeroParameter*> parameters;
    std::int64_t elements = 0;  ///< of the rank's shards
    Tensor master;
    std::unique_ptr<Optimizer> optimizer;
    std::vector<Tensor> unswapped;  ///< offload to NVMe: fp32 gradients that no file takes, until the step
  };

  void make_sub_groups(const ParameterGroups& groups);
  void make_masters();
  void reserve_host_memory_of_states();
  void reserve_host_memory_of_parameters();

  void install_gradient_hooks();
  void reduce_leaf_at_its_end(Module& leaf, std::vector<ZeroParameter*> parameters);
  void gradient_ready(ZeroParameter& parameter);
  void reduce_bucket();
  std::vector<Tensor> reduce_scatter();
  std::vector<Tensor> all_reduce_bucket();
  Tensor shard_in(DType to, const ZeroParameter& parameter, DType from);
  void keep_shards();
  Tensor to_host(const ZeroParameter& parameter);
  SubGroup& group_of(const ZeroParameter& parameter);
  bool is_on_nvme(const SubGroup& group) const;
  void check_overflow();
  void norm();
  void norm_of_offloaded();
  void update(SubGroup& group);

  bool overlaps() const { return settings_.json.overlap_comm.value_or(true); }
  /// communication_data_type: gradients on their way.
  DType sent_type() const { return settings_.json.communication_data_type.value_or(coordinator_.type()); }
  /// Of the rank's shard, what is no padding; none where the ranks are more than the elements.
  std::int64_t own_elements(const ZeroParameter& parameter) const {
    return std::clamp<std::int64_t>(parameter.elements - parameter.shard * settings_.rank, 0, parameter.shard);
  }
  DType accumulation_type() const { return settings_.accumulate_fp32 ? DType::fp32 : coordinator_.type(); }
  /// Of the bucket (before 0.17.2 the weights', whatever is sent). What adapters in fp32 put into it becomes 16 bits wide.
  DType bucket_type() const { return settings_.release.bucket_has_sent_type() ? sent_type() : coordinator_.type(); }
  /// Of the rank's shards once they are reduced: the accumulation's (before 0.19.2 the weights').
  DType reduced_type() const { return settings_.release.reduces_to_accumulation_type() ? accumulation_type() : coordinator_.type(); }

  ZeroCoordinator coordinator_;
  StreamId reduce_stream_;
  std::vector<SubGroup> groups_;
  Tensor bucket_;     ///< of gradients on their way
  Tensor gradients_;  ///< the rank's shards of all gradients
  std::vector<ZeroParameter*> bucketed_;
  std::int64_t bucketed_elements_ = 0;
  std::int64_t micro_step_ = 0;
  std::vector<Tensor> offload_norms_;
  Tensor global_norm_;  ///< engine.get_global_grad_norm()
  Tensor overflow_;     ///< inf_or_nan_tracker
  Tensor barrier_;      ///< what ProcessGroupNCCL reduces in a barrier and keeps
};

}  // namespace plimsoll::program

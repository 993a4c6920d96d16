/// ZeRO stages 1 and 2. Source: deepspeed/runtime/zero/stage_1_and_2.py.
#pragma once

#include <memory>
#include <vector>

#include "program/wrappers/deepspeed/deepspeed.hpp"

namespace plimsoll::program {

/// The trainable parameters of each group of the optimizer become views of one flat buffer; every rank owns one piece of it, its fp32
/// master and its moments. Gradients of all groups go through a bucket that is all-reduced when full; the rank keeps those of parameters
/// that touch its pieces.
class ZeroStage12 : public DeepSpeedOptimizer {
 public:
  ZeroStage12(Tape& tape, const ParameterGroups& groups, const DeepSpeedSettings& settings);

  void before_backward(bool boundary) override;
  bool scales_loss() const override { return true; }
  void after_backward() override;
  void step() override;

 protected:
  /// Weights and master alone: the optimizer and its states are the derived class's.
  struct WithoutOptimizer {};
  ZeroStage12(Tape& tape, const ParameterGroups& groups, const DeepSpeedSettings& settings, WithoutOptimizer);

  /// A group of the optimizer.
  struct OptimizerGroup {
    std::vector<std::size_t> members;  ///< in the order of the model
    std::vector<std::size_t> own;      ///< those that touch the rank's piece, in the order of the flat buffer
    std::int64_t piece = 0;            ///< elements of one rank's piece
    Tensor flat, master;
    std::unique_ptr<Optimizer> optimizer;
    std::vector<Tensor> averaged;         ///< averaged_gradients: the rank's piece, in pieces
    std::vector<Tensor> micro_gradients;  ///< all_grad_tensors: summed over the micro-batches
    Tensor compact_buffer;                ///< the rank's gradients in fp32, where they are one buffer
  };
  /// The group of a derived class that has but one.
  OptimizerGroup& only_group() { return groups_.front(); }
  const OptimizerGroup& only_group() const { return groups_.front(); }

  /// Stage 1 at the step's last micro-batch: gradients that no hook has put into a bucket.
  virtual void reduce_gradients();
  /// independent_gradient_partition_epilogue.
  virtual void epilogue();

  void reduce_bucket();
  void await_reductions();
  /// Gradients of a group's parameters that are the rank's, zeros of type `missing` where there is none.
  std::vector<Tensor> own_gradients(const OptimizerGroup& group, DType missing);
  /// get_flat_partition: the parts of the gradients that are the rank's, and zeros of type `padding` to fill the last rank's piece.
  std::vector<Tensor> partition_pieces(const OptimizerGroup& group, const std::vector<Tensor>& gradients, DType padding);
  void release_buckets();
  void clear_gradients();
  /// The master's 16-bit copy into the rank's piece of the weights.
  void write_weights(const OptimizerGroup& group);
  void gather_parameters();

  StreamId reducing_stream() const { return overlaps() ? reduction_stream_ : tape_.stream; }
  bool overlaps() const { return settings_.json.overlap_comm.value_or(false); }

  DType type_ = DType::bf16;  ///< of weights and gradients
  StreamId reduction_stream_;

 private:
  /// A trainable parameter and its place in the flat buffer.
  struct Member {
    std::shared_ptr<Parameter> slot;
    std::size_t group = 0;
    std::int64_t start = 0, elements = 0;  ///< its place in the group's flat buffer
    Tensor accumulated = {};  ///< param.grad_accum, where gradients are accumulated in fp32 in stage 1
    std::int64_t end() const { return start + elements; }
  };
  /// A part of the bucket that belongs to one rank.
  struct Slice {
    std::int64_t rank = 0, elements = 0;
    OptimizerGroup* to_compact = nullptr;  ///< is added to this group's compact fp32 buffer of the rank's gradients
  };

  // ---- setting up (deepspeed.initialize) ----
  void place_members(const std::vector<std::shared_ptr<Parameter>>& parameters);
  std::int64_t deal_out(OptimizerGroup& group);
  void flatten_parameters(OptimizerGroup& group, std::int64_t padding);
  void make_master(OptimizerGroup& group);
  void make_optimizers();
  void reserve_host_memory();

  // ---- gradients ----
  void gradient_ready(std::size_t member);
  void set_up_buckets();
  void into_bucket(std::size_t member);
  void average(const Tensor& tensor);
  std::vector<Slice> slices_of_bucket();
  void reduce_whole(const Tensor& tensor);
  void all_reduce(const std::vector<Slice>& slices, const Tensor& tensor);
  void send(std::int64_t elements);
  void make_compact_buffer(OptimizerGroup& group);
  void add_to_compact(OptimizerGroup& group, std::int64_t elements);
  void keep_or_clear(std::size_t member);
  void keep_in_partition(std::size_t member);
  void to_host(std::size_t member);
  std::vector<Tensor> collect_gradients();

  // ---- the step ----
  std::vector<Tensor> gradient_pieces(const OptimizerGroup& group);
  void norm();
  bool scales_gradients() const;
  void unscale(const OptimizerGroup& group);
  void update_on_device(OptimizerGroup& group);
  void update_on_host(OptimizerGroup& group);

  Tensor& gradient_of(std::size_t member);
  bool touches_own_piece(const Member& member) const;
  std::int64_t own_elements(const Member& member) const;
  OptimizerGroup& group_of(const Member& member) { return groups_[member.group]; }
  const OptimizerGroup& group_of(const Member& member) const { return groups_[member.group]; }
  std::int64_t own_start(const OptimizerGroup& group) const { return settings_.rank * group.piece; }
  /// communication_data_type: gradients on their way.
  DType sent_type() const { return settings_.json.communication_data_type.value_or(type_); }
  bool contiguous() const { return settings_.json.contiguous_gradients || settings_.offload_optimizer; }

  std::vector<Member> members_;  ///< group by group, in the order of the model
  std::vector<OptimizerGroup> groups_;
  DType padding_type_{};           ///< of what fills up the own gradients to the rank's piece
  bool compact_ = false;           ///< the rank's gradients are one fp32 buffer (fp32 accumulation)
  bool accumulate_apart_ = false;  ///< gradients are accumulated in fp32 tensors of their own (stage 1)

  bool ready_ = false;  ///< the buckets exist
  std::int64_t micro_step_ = -1;
  std::vector<Tensor> buckets_;  ///< two with overlap_comm
  std::size_t bucket_ = 0;       ///< the one that fills
  std::vector<std::size_t> bucketed_;
  std::int64_t bucketed_elements_ = 0;
  bool oversized_ = false;  ///< the only gradient in the bucket is larger than a bucket and stays where it is
  std::vector<std::size_t> previously_reduced_;

  Tensor kept_;                          ///< grads_in_partition: whole gradients of the rank's parameters, one after another
  Tensor offload_buffer_;  ///< temp_grad_buffer_for_gpu_offload
  std::vector<Tensor> offload_norms_;
  Tensor global_norm_;
};

}  // namespace plimsoll::program

/// One unit of FullyShardedDataParallel: a wrapped module's flat parameter and its hooks. Sources: torch/distributed/fsdp/_flat_param.py
/// and _runtime_utils.py of PyTorch 2.15.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "program/wrappers/fsdp/fsdp1.hpp"

namespace plimsoll::program {

/// What mixed precision casts.
inline bool is_floating(DType type) { return type == DType::fp32 || type == DType::bf16 || type == DType::fp16; }

/// One original parameter in the flat one.
struct FlatPiece {
  std::shared_ptr<Parameter> slot;
  std::int64_t offset = 0;  ///< elements from the start of the flat parameter
};

/// What the optimizer sees of a parameter.
struct Original {
  const Parameter* slot;
  Tensor tensor;
};

/// FlatParamHandle: the parameters of one wrapped module in one flat tensor.
class Fsdp1Unit {
 public:
  enum class State { idle, forward, pre_backward, post_backward };

  Fsdp1Unit(Fsdp1& owner, Module& module, std::vector<std::shared_ptr<Parameter>> slots, bool is_root);
  void materialize();
  void install_hooks();
  void initialize();
  void unshard();
  void reshard(bool free_gathered);
  void begin_forward() { unshards_in_forward_ = true, prefetched_ = false; }
  void end_backward();
  void rest();
  void fetch();
  /// The flat shard that is trained, without use_orig_params.
  void collect_shard(std::vector<Tensor>& into) const {
    if (shard_ && trainable_) into.push_back(shard_);
  }
  /// The pieces of original parameters, by parameter.
  void collect_originals(std::unordered_map<const Parameter*, Tensor>& into) const;
  const Module& module() const { return module_; }
  void forget_gradient() {
    unsharded_gradient_shown_ = false;
    reduced_.reset();
    if (gathered_) gathered_.grad().reset();
  }

 private:
  std::vector<Tensor> materialize_modules();
  void broadcast_states(const std::vector<Tensor>& parameters);
  void pre_forward(std::vector<Tensor*>& inputs);
  void post_forward(std::vector<Tensor*>& outputs);
  void pre_backward();
  void post_backward();
  void cast_inputs(std::vector<Tensor*>& inputs) const;
  void reshard_behind(const std::vector<Tensor*>& inputs);
  void unshard_for_forward();
  void prefetch_forward();
  void prefetch_backward(FsdpOptions::Prefetch now);
  void all_gather();
  void gather_low_precision();
  void split_views();
  std::vector<Tensor> zeros_of_unused(BackwardCall& call) const;
  void show_views();
  void show_gradient();
  void show_unsharded_gradient();
  /// Elements of an original parameter in the rank's shard; what lies in other ranks' shards is empty and no business of the optimizer.
  std::int64_t mine(const FlatPiece& piece) const;
  void reduce_sharded(const Tensor& gradient);
  Tensor reduce(const Tensor& unsharded);
  void reduce_whole(Tensor gradient);
  void accumulate(Tensor output);
  DType compute_type() const { return owner_.settings_.param_dtype.value_or(type_); }
  DType reduce_type() const { return owner_.settings_.reduce_dtype.value_or(compute_type()); }
  bool low_precision() const { return compute_type() != type_; }
  bool sharded() const { return owner_.settings_.sharded; }
  bool frees_in_backward() const { return sharded() && (owner_.synchronize_ || owner_.settings_.reshard_after_forward); }
  std::int64_t shard_elements() const { return padded_ / owner_.settings_.shard; }
  Tape& tape() const { return owner_.tape_; }

  Fsdp1& owner_;
  Module& module_;
  State state_ = State::idle;
  bool is_root_;
  std::vector<FlatPiece> pieces_;
  DType type_ = DType::fp32;
  bool trainable_ = false;  ///< any of its parameters: then the flat parameter gets a gradient as a whole
  std::int64_t elements_ = 0, padded_ = 0;
  Tensor shard_;                     ///< the rank's part, in the parameters' type
  std::vector<Original> originals_;  ///< the optimizer's pieces of it, with use_orig_params
  Tensor gathered_;                  ///< leaf on the padded unsharded storage
  NodeRef accumulator_;              ///< of the leaf: carries the post-backward hook
  Tensor low_precision_shard_;
  std::vector<Tensor> views_;  ///< of the original parameters, outputs of one split
  Tensor reduced_;             ///< the reduced gradient: _saved_grad_shard
  bool unsharded_ = false;
  bool unsharded_gradient_shown_ = false;  ///< original parameters have gradients from no_sync()
  bool prefetched_ = false;                ///< gathered by the unit that runs before it in forward; until it is given back
  bool unshards_in_forward_ = false;       ///< _needs_pre_forward_unshard: it has not run in this pass yet
  bool unshards_in_backward_ = false;      ///< _needs_pre_backward_unshard
  std::size_t inputs_waiting_ = 0;         ///< of a frozen unit: inputs whose gradients have not come yet
  std::optional<std::size_t> pre_forward_index_;
  std::optional<std::size_t> post_forward_index_;  ///< of the unit's first forward of a pass
};

}  // namespace plimsoll::program

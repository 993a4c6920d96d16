// A group of sharded parameters through its unit's forward and backward.
#include "program/wrappers/fsdp/fsdp2_group.hpp"

#include <utility>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

Fsdp2Group::Fsdp2Group(Fsdp2& owner, const std::vector<Module*>& modules, const Fsdp2Mesh& ranks, bool is_root)
    : mesh(ranks),
      reshard_after_forward(is_root ? owner.options_.reshard_root : owner.options_.reshard_after_forward),
      owner_(owner),
      modules_(modules) {}

void Fsdp2Group::add(const std::shared_ptr<Parameter>& slot, int dimension) {
  for (const ShardedParameter& other : parameters)  // FSDPParamGroup._init_mp_dtypes
    if (other.slot->trainable && slot->trainable && other.slot->type != slot->type)
      fail("fully_shard takes trained parameters of one type in a group: '" + slot->name + "' has another", "param_dtype", "fp32");
  ShardedParameter parameter;
  parameter.slot = slot;
  parameter.dimension = dimension;
  parameter.shard_sizes = slot->sizes;
  Dims padded = slot->sizes;
  if (padded.rank() > 0) {
    padded[dimension] = mesh.padded_rows(slot->sizes[dimension]);
    parameter.shard_sizes[dimension] = mesh.own_rows(slot->sizes[dimension]);
  }
  parameter.shard_elements = padded.product();
  parameters.push_back(std::move(parameter));
}

DType Fsdp2Group::compute_type(const ShardedParameter& parameter) const {
  return owner_.options_.param_dtype.value_or(parameter.slot->type);
}

void Fsdp2Group::materialize_shard(const Parameter* slot) {
  for (ShardedParameter& parameter : parameters) {
    if (parameter.slot.get() != slot) continue;
    if (parameter.shard) {  // tied: applied to once more, by param.data = …
      if (owner_.options_.offload_to_host) continue;
      parameter.shard.impl()->storage = tape().empty(parameter.shard_sizes, slot->type, Category::parameter).impl()->storage;
    } else if (owner_.options_.offload_to_host) {
      tape().program().host_pinned += Bytes(parameter.shard_elements * size_of(slot->type));
      parameter.shard =
          tape().view(tape().empty({0}, slot->type, Category::parameter), parameter.shard_sizes, contiguous_strides(parameter.shard_sizes));
      parameter.shard.set_requires_grad(slot->trainable);
    } else {
      parameter.shard = tape().parameter(parameter.shard_sizes, slot->type, slot->trainable);
    }
    parameter.padded = owner_.options_.offload_to_host || parameter.shard_sizes.product() == parameter.shard_elements;
  }
}

Dims Fsdp2Group::shard_sizes(const Parameter* slot) const {
  for (const ShardedParameter& parameter : parameters)
    if (parameter.slot.get() == slot) return parameter.shard_sizes;
  return {0};
}

void Fsdp2Group::pad_shards() {
  for (ShardedParameter& parameter : parameters) {
    if (!parameter.shard || parameter.padded) continue;
    parameter.shard.impl()->storage = tape().empty({parameter.shard_elements}, parameter.slot->type, Category::parameter).impl()->storage;
    parameter.padded = true;
  }
}

void Fsdp2Group::pre_forward(std::vector<Tensor*>& tensors) {
  const bool entering = std::exchange(state, TrainingState::forward) != TrainingState::forward;
  unshard();
  wait_for_unshard();
  if (entering) register_post_backward(tensors);
}

/// RegisterPostBackwardFunction: its backward runs when the gradients of the unit's inputs are known.
void Fsdp2Group::register_post_backward(std::vector<Tensor*>& tensors) {
  List<const Tensor*> inputs;
  for (Tensor* tensor : tensors)
    if (tensor->defined() && tensor->requires_grad()) inputs.push_back(tensor);
  if (inputs.empty() || !tape().grad_enabled || parameters.empty()) return;
  std::vector<Tensor> outputs;
  {
    PythonFunction op("RegisterPostBackward", inputs);
    for (const Tensor* input : inputs) {
      Tensor alias = tape().view(*input, input->sizes(), input->strides());
      alias.impl()->base.reset();
      outputs.push_back(std::move(alias));
    }
    op.finish_all(outputs, [this, count = inputs.size()](BackwardCall& call) {
      post_backward();
      for (std::size_t i = 0; i < count; ++i)
        if (call.grad(i).defined()) call.give(i, call.grad(i));
    });
  }
  std::size_t next = 0;
  for (Tensor* tensor : tensors)
    if (tensor->defined() && tensor->requires_grad()) *tensor = outputs[next++];
}

void Fsdp2Group::post_forward() {
  state = TrainingState::forward;
  reshard();
  post_forward_indices_.push_back(owner_.post_forward_order_.size());
  owner_.post_forward_order_.push_back(this);
  state = TrainingState::idle;
}

void Fsdp2Group::pre_backward(bool prefetches) {
  if (state == TrainingState::pre_backward) return;
  state = TrainingState::pre_backward;
  unshard();
  wait_for_unshard();
  defer_widening(true);
  if (prefetches) prefetch_backward();
}

void Fsdp2Group::prefetch_backward() {
  if (post_forward_indices_.empty()) return;
  const std::size_t index = post_forward_indices_.back();
  post_forward_indices_.pop_back();
  if (index > 0) owner_.post_forward_order_[index - 1]->prefetch(TrainingState::pre_backward);
}

void Fsdp2Group::post_backward() {
  const bool partial = modules_.size() > 1 && state == TrainingState::forward;  // only some modules of the unit ran (a head by chunks)
  state = TrainingState::post_backward;
  if (parameters.empty()) return;
  tape().host(HostWork::unit);
  const LabelScope label(tape(), modules_.front()->label);
  pending_ = !reduce_gradients;
  if (!reduce_gradients) {
    defer_widening(false);
    if (reshard_after_backward) reshard();
    return;
  }
  std::vector<std::pair<ShardedParameter*, Tensor>> gradients;
  for (ShardedParameter& parameter : parameters) {
    if (!parameter.gathered || !parameter.gathered.grad()) continue;
    gradients.emplace_back(&parameter, std::move(parameter.gathered.grad()));
    parameter.gathered.grad().reset();
  }
  defer_widening(false);
  if (reshard_after_backward) reshard();
  if (last_of_unit && !owner_.reduce_states_.empty()) {
    tape().wait(kComputeStream, owner_.reduce_stream_);
    owner_.reduce_states_.clear();
  }
  if (gradients.empty()) return;
  reduce_output_kept_.reset();
  cut_gradients(gradients);
  reduce(gradients);
  if (partial) tape().wait(kComputeStream, owner_.reduce_stream_);
}

void Fsdp2Group::end_backward(bool manual) {
  if (state != TrainingState::post_backward) {
    if (manual && reduce_gradients) {
      pending_ = true;
    } else {
      post_backward();
    }
  }
  state = TrainingState::idle;
}

void Fsdp2Group::finalize() {
  if (pending_) {
    post_backward();
  } else if (reshard_after_backward) {
    reshard();
  }
  state = TrainingState::idle;
}

void Fsdp2Group::finish_iteration() {
  reduce_output_kept_.reset();
  gather_output_.reset();
  post_forward_indices_.clear();
}

}  // namespace plimsoll::program

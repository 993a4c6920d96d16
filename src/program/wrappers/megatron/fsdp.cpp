// The hooks of MegatronFSDP: who is gathered before it runs and released after it.
#include "program/wrappers/megatron/fsdp.hpp"

#include <algorithm>
#include <utility>

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

MegatronFsdp::MegatronFsdp(Tape& tape, const MegatronFsdpModules& modules, const MegatronFsdpOptions& options, StreamId side)
    : tape_(tape),
      options_(options),
      gather_stream_(tape.add_stream("parameter gather")),
      reduce_stream_(tape.add_stream("gradient reduction")),
      weight_pool_(tape),
      gradient_pool_(tape),
      parameters_(modules.root->all_parameters()) {
  make_groups(modules);
  if (options_.double_buffer && shards_weights()) choose_pooled();
  {
    const LabelScope label(tape_, tape_.intern("param_and_grad_buffer"));
    const StreamScope stream(tape_, side);
    make_buffers();
    make_gradients();
  }
  tape_.empty_cache();
  make_mains();
  install_hooks(modules);
}

/// all_gather_and_wait_parameters_ready is asked for a unit's parameters, or for those of one module outside of units.
std::vector<std::size_t> MegatronFsdp::groups_of(Module& module, bool whole) const {
  std::vector<std::size_t> groups;
  for (const auto& parameter : whole ? module.all_parameters() : module.parameters) groups.push_back(places_.at(parameter.get()).group);
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

void MegatronFsdp::install_hooks(const MegatronFsdpModules& modules) {
  if (shards_states()) {
    for (Module* module : modules.outside) {
      module->pre_forward.push_back(
          [this](Module& each, std::vector<Tensor*>&) { gather(groups_of(each, false), Prefetch::forward, true); });
    }
  }
  for (Module* layer : modules.layers) {
    if (shards_weights()) {
      units_.push_back(layer);
      hook_unit(*layer);
    } else if (shards_states()) {
      layer->pre_forward.push_back([this](Module& each, std::vector<Tensor*>&) { gather(groups_of(each, true), Prefetch::forward, true); });
    }
  }
  modules.root->post_forward.push_back(
      [this](Module&, std::vector<Tensor*>& outputs) { on_gradients_of(outputs, [this] { before_backward(); }); });
  for (const auto& parameter : parameters_) {
    const Place place = places_.at(parameter.get());
    parameter->tensor.register_post_accumulate_grad_hook([this, place](const Tensor&) { gradient_ready(place); });
  }
}

/// Layers are units where parameters are sharded: gathered before they run, forward and backward, and released behind it.
void MegatronFsdp::hook_unit(Module& layer) {
  layer.pre_forward.push_back([this](Module& unit, std::vector<Tensor*>& tensors) {
    const bool recomputed = before_backward_.count(&unit) > 0;
    gather(groups_of(unit, true), recomputed ? Prefetch::none : Prefetch::forward, true);
    register_backward(unit, tensors);
  });
  layer.post_forward.push_back([this](Module& unit, std::vector<Tensor*>& outputs) {
    const bool recomputed = before_backward_.count(&unit) > 0;
    for (const std::size_t index : groups_of(unit, true)) {
      Group& group = groups_[index];
      if (recomputed && group.status != Status::empty) group.may_be_released = true;
      if (!recomputed) release(index);
    }
    on_gradients_of(outputs, [this, &unit] {
      before_backward_.insert(&unit);
      gather(groups_of(unit, true), Prefetch::backward, true);
    });
  });
}

/// RegisterFSDPBackwardFunction: its backward runs when the gradients of the unit's inputs are known.
void MegatronFsdp::register_backward(Module& layer, std::vector<Tensor*>& tensors) {
  List<const Tensor*> inputs;
  for (const Tensor* tensor : tensors) {
    if (tensor->defined() && tensor->requires_grad()) inputs.push_back(tensor);
  }
  if (inputs.empty() || !tape_.grad_enabled) return;
  std::vector<Tensor> outputs;
  {
    PythonFunction op("RegisterFSDPBackward", inputs);
    for (const Tensor* input : inputs) {
      Tensor alias = tape_.view(*input, input->sizes(), input->strides());
      alias.impl()->base.reset();
      outputs.push_back(std::move(alias));
    }
    op.finish_all(outputs, [this, &layer, count = inputs.size()](BackwardCall& b) {
      for (const std::size_t index : groups_of(layer, true)) release(index);
      before_backward_.erase(&layer);
      for (std::size_t i = 0; i < count; ++i) {
        if (b.grad(i).defined()) b.give(i, b.grad(i));
      }
    });
  }
  std::size_t next = 0;
  for (Tensor* tensor : tensors) {
    if (tensor->defined() && tensor->requires_grad()) *tensor = outputs[next++];
  }
}

/// create_custom_backward_hook: outputs become views of themselves, whose gradients run the hook.
void MegatronFsdp::on_gradients_of(std::vector<Tensor*>& outputs, const std::function<void()>& action) {
  for (Tensor* output : outputs) {
    if (!output->defined()) continue;
    *output = view(*output, output->sizes());
    if (output->requires_grad()) output->register_hook([action](Tensor&) { action(); });
  }
}

/// _root_pre_backward.
void MegatronFsdp::before_backward() {
  if (std::exchange(in_backward_, true)) return;
  before_backward_.insert(units_.begin(), units_.end());
  for (Group& group : groups_) {
    if (group.layout.unit) group.may_be_released = true;
  }
  tape_.queue_callback([this] { after_backward(); });
}

/// _root_post_backward.
void MegatronFsdp::after_backward() {
  if (reduces_now()) wait_reduced(0);
  in_backward_ = false;
}

void MegatronFsdp::zero_grad_buffer() {
  for (Group& group : groups_) {
    for (MegatronMain& main : group.mains) {
      if (main.parameter) main.parameter.grad().reset();
    }
    in_place(group.gradients, {});
  }
}

void MegatronFsdp::finish_grad_sync() {
  if (overlaps_reductions()) {
    wait_reduced(0);
  } else {
    reduce_at_once();
  }
  attach_gradients();
  if (overlaps_gathers()) release_all();
}

void MegatronFsdp::gather_parameters() {
  if (!shards_states()) return;
  if (overlaps_gathers()) {
    gather({places_.at(parameters_.front().get()).group}, Prefetch::forward, false);
    return;
  }
  release_all();
  for (std::size_t index = 0; index < groups_.size(); ++index) start_gather(index);
  for (Group& group : groups_) wait_gathered(group);
}

std::int64_t MegatronFsdp::gradient_elements(const Parameter& parameter) const {
  const Place& place = places_.at(&parameter);
  const Tensor& main = groups_[place.group].mains[place.item].parameter;
  return main ? main.elements() : 0;
}

std::vector<MegatronMain> MegatronFsdp::mains() const {
  std::vector<MegatronMain> mains;
  for (const auto& parameter : parameters_) {
    const Place& place = places_.at(parameter.get());
    const MegatronMain& main = groups_[place.group].mains[place.item];
    if (main.parameter) mains.push_back(main);
  }
  return mains;
}

}  // namespace plimsoll::program

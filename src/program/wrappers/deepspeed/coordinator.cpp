#include "program/wrappers/deepspeed/coordinator.hpp"

#include <algorithm>
#include <functional>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"
#include "program/wrappers/deepspeed/linear.hpp"

namespace plimsoll::program {

namespace {

template <class T>
void add_once(std::vector<T>& list, T element) {
  if (std::find(list.begin(), list.end(), element) == list.end()) list.push_back(element);
}

template <class T>
void drop(std::vector<T>& list, T element) {
  list.erase(std::remove(list.begin(), list.end(), element), list.end());
}

}  // namespace

// ---- partitioning ----------------------------------------------------------------------------------------------------------

ZeroCoordinator::ZeroCoordinator(Tape& tape, Module& root, const DeepSpeedSettings& settings)
    : tape_(tape),
      root_(root),
      settings_(settings),
      gather_stream_(settings.json.overlap_comm.value_or(true) ? tape.add_stream("all-gather") : kComputeStream),
      collective_stream_(gather_stream_ == kComputeStream ? kComputeStream : tape.add_stream("data parallel")) {
  for (const auto& slot : root.all_parameters()) add_parameter(slot);
  mark_persistent_parameters();
  for (const auto& parameter : parameters) {
    if (nothing_.count(parameter->slot->type) == 0) nothing_.emplace(parameter->slot->type, tape.empty({0}, parameter->slot->type));
    if (is_put_in_later(*parameter->slot) && settings.json.zero_init.value_or(true))
      parameter->id += static_cast<std::int64_t>(parameters.size());  // behind those of the model
    else
      type_ = parameter->slot->type;
  }
}

void ZeroCoordinator::add_parameter(const std::shared_ptr<Parameter>& slot) {
  auto parameter = std::make_unique<ZeroParameter>();
  parameter->slot = slot;
  parameter->id = static_cast<std::int64_t>(parameters.size());
  parameter->elements = slot->sizes.product();
  parameter->shard = ceil_div(parameter->elements, settings_.ranks);
  parameters.push_back(std::move(parameter));
}

/// parameter_offload.py: small parameters, in the order of the model, as long as all of them are not more than the model's threshold.
void ZeroCoordinator::mark_persistent_parameters() {
  std::int64_t total = 0;
  for (auto& parameter : parameters) {
    if (parameter->elements > settings_.json.stage3_model_persistence_threshold - total) continue;
    if (parameter->elements > settings_.json.stage3_param_persistence_threshold) continue;
    parameter->persistent = true;
    total += parameter->elements;
  }
}

std::int64_t ZeroCoordinator::shard_elements() const {
  std::int64_t elements = 0;
  for (const auto& parameter : parameters) elements += parameter->shard;
  return elements;
}

std::int64_t ZeroCoordinator::trained_elements() const {
  std::int64_t elements = 0;
  for (const auto& parameter : parameters)
    if (parameter->slot->trainable) elements += parameter->shard;
  return elements;
}

DType ZeroCoordinator::trained_type() const {
  for (const auto& parameter : parameters)
    if (parameter->slot->trainable) return parameter->slot->type;
  fail("DeepSpeed needs a parameter that is trained", "lora");
}

Tensor ZeroCoordinator::new_shard(const ZeroParameter& parameter) {
  if (settings_.offload_parameters) return {};
  return tape_.empty({parameter.shard}, parameter.slot->type, Category::parameter);
}

/// _partition_param_sec: undefined without hpZ.
Tensor ZeroCoordinator::new_secondary(const ZeroParameter& parameter) {
  const int ranks = std::min(settings_.json.zero_hpz_partition_size, settings_.ranks);
  if (settings_.json.zero_hpz_partition_size <= 1) return {};
  Tensor secondary = tape_.empty({parameter.shard * settings_.ranks / ranks}, type_, Category::parameter);
  pointwise(secondary, {&secondary});
  return secondary;
}

/// What was gathered from all ranks is kept in part until the step, so that backward gathers it within the node.
void ZeroCoordinator::keep_secondary(ZeroParameter& parameter) {
  if (!parameter.secondary) parameter.secondary = new_secondary(parameter);
}

void ZeroCoordinator::partition() {
  tape_.operator_name = "partition parameters";
  const bool at_construction = settings_.json.zero_init.value_or(true);
  tape_.patched_linear = at_construction || settings_.release.replaces_linear_always() ? zero3_linear : linear_of_views;  // memory_efficient_linear
  if (at_construction) {
    std::vector<Tensor> duplicates;
    partition_at_construction(root_, duplicates);
    for (auto& parameter : parameters) parameter->status = ZeroParameter::Status::absent;
    partition_adapters();
  } else {
    partition_materialized();
  }
  if (!settings_.offload_parameters) defragment();
  for (auto& parameter : parameters) {
    const Tensor& nothing = nothing_.at(parameter->slot->type);
    parameter->leaf = tape_.view(nothing, parameter->slot->sizes, contiguous_strides(parameter->slot->sizes));
    parameter->leaf.impl()->base.reset();
    parameter->leaf.set_requires_grad(parameter->slot->trainable);
    parameter->slot->tensor = parameter->leaf;
  }
}

/// By way of the host, so that the trained shards can be one tensor; frozen ones stay where they are.
void ZeroCoordinator::defragment() {
  const std::int64_t elements = trained_elements();
  const DType type = trained_type();
  for (auto& parameter : parameters)
    if (parameter->slot->trainable) parameter->resident.reset();
  tape_.empty_cache();
  tape_.copy({Copy::Direction::device_to_host, elements * size_of(type)}, tape_.stream);
  const Tensor flat = tape_.empty({elements}, type, Category::parameter);
  tape_.copy({Copy::Direction::host_to_device, flat.bytes()}, tape_.stream);
  for (auto& parameter : parameters)
    if (parameter->slot->trainable) parameter->resident = flat;
}

/// deepspeed.zero.Init: a parameter is whole on the device until its module's __init__ returns.
void ZeroCoordinator::partition_at_construction(Module& module, std::vector<Tensor>& duplicates) {
  for (const auto& child : module.children) partition_at_construction(*child, duplicates);
  const LabelScope label(tape_, module.label);
  for (ModuleBuffer& buffer : module.buffers) buffer.tensor = tape_.empty(buffer.sizes, buffer.type, Category::parameter);
  std::vector<std::pair<ZeroParameter*, Tensor>> whole;
  for (const auto& slot : module.parameters)
    for (const auto& parameter : parameters)
      if (parameter->slot == slot && !is_put_in_later(*slot))
        whole.emplace_back(parameter.get(), tape_.empty(slot->sizes, slot->type, Category::parameter));
  for (auto& [parameter, tensor] : whole) {
    const bool again = parameter->status == ZeroParameter::Status::available;  // a tied parameter, made a second time
    if (again)
      duplicates.push_back(new_secondary(*parameter));
    else
      keep_secondary(*parameter);
    if (again)
      duplicates.push_back(new_shard(*parameter));
    else
      parameter->resident = new_shard(*parameter);
    parameter->status = ZeroParameter::Status::available;
    tensor.reset();
  }
}

/// get_peft_model behind zero.Init: adapters are made in the type of the layer that they stand beside, then cast to their own, one by one
/// (cast_adapter_dtype); deepspeed.initialize cuts them up (_convert_to_zero_parameters).
void ZeroCoordinator::partition_adapters() {
  std::vector<std::pair<ZeroParameter*, Tensor>> whole;
  for (const auto& parameter : parameters)
    if (is_put_in_later(*parameter->slot))
      whole.emplace_back(parameter.get(), tape_.empty(parameter->slot->sizes, type_, Category::parameter));
  for (auto& [parameter, tensor] : whole)
    if (parameter->slot->type != type_) tensor = tape_.empty(parameter->slot->sizes, parameter->slot->type, Category::parameter);
  for (auto& [parameter, tensor] : whole) {
    parameter->resident = new_shard(*parameter);
    tensor.reset();
  }
}

void ZeroCoordinator::partition_materialized() {
  for (const auto& parameter : parameters) {
    keep_secondary(*parameter);
    parameter->resident = new_shard(*parameter);
    parameter->slot->tensor.reset();
  }
}

/// Each is gathered into a tensor of its own (before 0.18.5: and copied out of it).
void ZeroCoordinator::touch_all() {
  tape_.operator_name = "gradient hooks";
  for (const auto& parameter : parameters) {
    if (!parameter->slot->trainable) continue;
    const DType type = parameter->slot->type;
    Tensor whole = tape_.empty({parameter->shard * settings_.ranks}, type, Category::communication_buffer);
    Tensor other = settings_.release.gathers_in_place() ? shard_on_device(*parameter) : tape_.empty(parameter->slot->sizes, type);
    tape_.collective({.kind = CollectiveKind::all_gather, .group = Group::data_shard, .bytes = whole.bytes(), .type = type}, tape_.stream);
    whole.reset();
  }
}

/// param.ds_tensor.to(device): undefined where the shard is on the device anyway.
Tensor ZeroCoordinator::shard_on_device(const ZeroParameter& parameter) {
  if (!settings_.offload_parameters) return {};
  Tensor shard = tape_.empty({parameter.shard}, parameter.slot->type, Category::communication_buffer);
  tape_.copy({Copy::Direction::host_to_device, shard.bytes()}, tape_.stream);
  return shard;
}

// ---- hooks -----------------------------------------------------------------------------------------------------------------

void ZeroCoordinator::install_hooks() {
  root_.pre_forward.push_back([this](Module&, std::vector<Tensor*>&) { reset_step(); });
  if (settings_.adapters)
    for (int wrapper = 0; wrapper < 2; ++wrapper) attach(root_, {});  // PeftModel and LoraModel, which are called around the network
  attach_below(root_);
}

/// _register_deepspeed_module.
void ZeroCoordinator::attach_below(Module& module) {
  const std::vector<Module*>& leaves = settings_.leaf_modules;
  if (std::find(leaves.begin(), leaves.end(), &module) != leaves.end()) {
    attach(module, module.all_parameters());
    return;
  }
  attach(module, module.parameters);
  for (const auto& child : module.children) attach_below(*child);
  // lora.Linear asks for the type of lora_A's weight.
  if (Module* down = module.find_child("lora_A"))
    module.child("base_layer").post_forward.push_back([&a = down->child("default")](Module&, std::vector<Tensor*>&) {
      a.read_from_outside(*a.parameters.front());
    });
}

/// ZeROOrderedDict.__getitem__: a parameter that is not gathered when it is asked for outside of its owner's forward, so in the first
/// forward, is gathered at once, and is from then on one more of the module whose forward asks (register_external_parameter).
void ZeroCoordinator::read_outside(ZeroParameter& parameter) {
  if (running_.empty() || tape_.in_backward() || parameter.status != ZeroParameter::Status::absent) return;
  add_once(states_[running_.back()].parameters, &parameter);
  gather_at_once(parameter);
}

/// param.all_gather().
void ZeroCoordinator::gather_at_once(ZeroParameter& parameter) {
  const DType type = parameter.slot->type;
  Tensor whole = tape_.empty({parameter.shard * settings_.ranks}, type, Category::communication_buffer);
  const Tensor shard = shard_on_device(parameter);
  tape_.collective({.kind = CollectiveKind::all_gather, .group = Group::data_shard, .bytes = whole.bytes(), .type = type}, tape_.stream);
  if (!settings_.release.gathers_in_place()) whole = elementwise(tape_, {&whole}, type);  // copied out of it
  set_data(parameter, whole);
  parameter.status = ZeroParameter::Status::available;
}

void ZeroCoordinator::attach(Module& module, const std::vector<std::shared_ptr<Parameter>>& slots) {
  ModuleState& state = states_[&module];
  for (const auto& parameter : parameters)
    for (const auto& slot : slots)
      if (slot == parameter->slot) state.parameters.push_back(parameter.get());
  module.read_from_outside = [this](const Parameter& slot) {
    for (const auto& parameter : parameters)
      if (parameter->slot.get() == &slot) read_outside(*parameter);
  };
  module.pre_forward.push_back([this](Module& called, std::vector<Tensor*>& inputs) {
    if (!tape_.in_backward()) running_.push_back(&called);
    fetch(called, true);
    add_post_backward(called, inputs);
  });
  module.post_forward.push_back([this](Module& called, std::vector<Tensor*>& outputs) {
    if (!tape_.in_backward()) running_.erase(std::find(running_.rbegin(), running_.rend(), &called).base() - 1, running_.end());
    release_module(called, true);
    add_pre_backward(called, outputs);
  });
}

/// PreBackwardFunctionForModule on the outputs.
void ZeroCoordinator::add_pre_backward(const Module& module, std::vector<Tensor*>& outputs) {
  for (Tensor* output : outputs) {
    if (!output->defined()) continue;
    ++states_[&module].pre_backward_pending;
    Tensor alias = tape_.view(*output, output->sizes(), output->strides());
    alias.impl()->base.reset();
    PythonFunction op("PreBackward", {output});
    op.finish({&alias}, [this, &module](BackwardCall& call) {
      ModuleState& state = states_[&module];
      if (state.pre_backward_pending > 0) {
        fetch(module, false);
        --state.pre_backward_pending;
      }
      call.give(0, call.grad());
    });
    *output = std::move(alias);
  }
}

/// PostBackwardFunctionModule on the inputs: the module's backward is over when all of their gradients have passed.
void ZeroCoordinator::add_post_backward(Module& module, std::vector<Tensor*>& inputs) {
  ModuleState& state = states_[&module];
  state.inputs_remaining = 0;
  if (state.parameters.empty() && !module.find_child("lora_A")) return;
  for (Tensor* input : inputs) {
    if (!input->defined() || !input->requires_grad()) continue;
    ++state.inputs_remaining;
    Tensor alias = tape_.view(*input, input->sizes(), input->strides());
    alias.impl()->base.reset();
    PythonFunction op("PostBackward", {input});
    op.finish({&alias}, [this, &module](BackwardCall& call) {
      if (--states_[&module].inputs_remaining == 0) release_module(module, false);
      call.give(0, call.grad());
    });
    *input = std::move(alias);
  }
}

// ---- the trace -------------------------------------------------------------------------------------------------------------

/// _clean_inflight_param_registry.
void ZeroCoordinator::release_in_flight() {
  for (ZeroParameter* parameter : std::vector<ZeroParameter*>(in_flight_)) {
    wait(*parameter);
    release(*parameter);
  }
}

void ZeroCoordinator::forget_fetches() {
  for (auto& parameter : parameters) parameter->fetched_for = std::numeric_limits<std::int64_t>::min();
}

/// At the start of every forward pass.
void ZeroCoordinator::reset_step() {
  release_in_flight();
  if (trace_ == Trace::recording) {
    construct_parameter_trace();
    trace_ = Trace::complete;
  } else if (trace_ == Trace::invalid) {
    trace_ = Trace::recording;
  }
  queue_.assign(parameter_order_.begin(), parameter_order_.end());
  forget_fetches();
  step_ = 0;
  available_ = 0;
}

/// trace_prologue: a pass that goes on otherwise than the one that was recorded, so a backward behind a forward that was recorded without
/// gradients, drops the trace; the next forward records again. What may be released stays remembered.
void ZeroCoordinator::check_trace(const Module& module) {
  if (trace_ != Trace::complete) return;
  if (step_ < static_cast<std::int64_t>(module_order_.size()) && module_order_[static_cast<std::size_t>(step_)] == &module) return;
  trace_ = Trace::invalid;
  module_order_.clear();
  parameter_order_.clear();
  queue_.clear();
  forget_fetches();
  release_in_flight();
}

void ZeroCoordinator::construct_parameter_trace() {
  for (std::size_t step = 0; step < module_order_.size(); ++step)
    for (ZeroParameter* parameter : states_[module_order_[step]].parameters)
      parameter_order_.push_back({parameter, static_cast<std::int64_t>(step)});
}

/// fetch_sub_module: gathers what the module needs, waits for it, and starts gathering what comes next.
void ZeroCoordinator::fetch(const Module& module, bool forward) {
  tape_.host(HostWork::zero_module);
  const char* const operator_before = std::exchange(tape_.operator_name, "gather parameters");
  check_trace(module);
  if (trace_ == Trace::recording) module_order_.push_back(&module);
  if (!forward) add_once(backward_modules_, &module);
  ModuleState& state = states_[&module];
  gather(state.parameters);
  for (ZeroParameter* parameter : state.parameters) {
    add_once(parameter->users, &module);
    if (forward && tape_.in_backward() && !parameter->slot->trainable) keep_for_backward(*parameter);
    if (parameter->gather) wait(*parameter);
  }
  if (gather_stream_ != kComputeStream) tape_.wait(kComputeStream, gather_stream_);
  if (trace_ == Trace::complete) prefetch(state);
  ++step_;
  tape_.operator_name = operator_before;
}

/// update_recompute_parameters: a frozen weight has no gradient whose hook would release it once the recomputed layer's backward is over;
/// the module whose backward runs does.
void ZeroCoordinator::keep_for_backward(ZeroParameter& parameter) {
  if (!settings_.release.releases_recomputed() || backward_modules_.empty()) return;
  add_once(states_[backward_modules_.back()].recomputed, &parameter);
  add_once(parameter.users, backward_modules_.back());
}

/// With stage3_allgather_sequential one element is the most that is gathered ahead, so one parameter.
std::int64_t ZeroCoordinator::prefetch_size() const {
  return settings_.json.allgather_sequential ? 1 : settings_.json.stage3_prefetch_bucket_size;
}

void ZeroCoordinator::prefetch(ModuleState& state) {
  // What this module uses is taken from the queue, unless an earlier prefetch has done so.
  std::int64_t unseen = 0;
  for (const ZeroParameter* parameter : state.parameters) unseen += parameter->fetched_for < step_;
  for (; unseen > 0 && !queue_.empty(); --unseen) {
    queue_.front().parameter->fetched_for = queue_.front().step;
    queue_.pop_front();
  }
  const std::int64_t most = std::min(settings_.json.stage3_max_live_parameters - available_, prefetch_size());
  std::vector<ZeroParameter*> wanted;
  std::int64_t elements = 0;
  while (!queue_.empty() && elements < most) {
    const Use use = queue_.front();
    queue_.pop_front();
    ZeroParameter& parameter = *use.parameter;
    parameter.fetched_for = std::max(parameter.fetched_for, use.step);
    if (parameter.status != ZeroParameter::Status::absent) continue;
    if (std::find(wanted.begin(), wanted.end(), &parameter) != wanted.end()) continue;
    wanted.push_back(&parameter);
    elements += parameter.elements;
  }
  gather(wanted);
}

// ---- releasing -------------------------------------------------------------------------------------------------------------

/// release_sub_module.
void ZeroCoordinator::release_module(const Module& module, bool forward) {
  ModuleState& state = states_[&module];
  std::vector<ZeroParameter*> all = state.parameters, used = state.parameters;
  std::vector<ZeroParameter*>& candidates = trace_ == Trace::complete ? releasable(module, step_) : all;
  if (!forward) {
    for (ZeroParameter* parameter : std::exchange(state.recomputed, {})) {
      if (!parameter->persistent) add_once(candidates, parameter);  // of the remembered answer, too
      add_once(used, parameter);
    }
    drop(backward_modules_, &module);
  }
  for (ZeroParameter* parameter : used) {
    drop(parameter->users, &module);
    if (std::find(candidates.begin(), candidates.end(), parameter) != candidates.end()) release(*parameter);
  }
}

/// __params_to_release, which remembers its answers: neither persistent parameters, nor those that a prefetch has counted on, nor those
/// that are used again within max_reuse_distance elements.
std::vector<ZeroParameter*>& ZeroCoordinator::releasable(const Module& module, std::int64_t step) {
  const auto [at, is_new] = releasable_.try_emplace({&module, step});
  if (!is_new) return at->second;
  std::vector<ZeroParameter*>& found = at->second;
  for (ZeroParameter* parameter : states_[&module].parameters)
    if (!parameter->persistent && parameter->fetched_for <= step) found.push_back(parameter);
  if (found.empty()) return found;
  std::int64_t traversed = 0;
  for (auto i = static_cast<std::size_t>(step); i < module_order_.size() && traversed < settings_.json.stage3_max_reuse_distance; ++i) {
    for (const ZeroParameter* parameter : states_[module_order_[i]].parameters) {
      found.erase(std::remove(found.begin(), found.end(), parameter), found.end());
      traversed += parameter->elements;
    }
  }
  return found;
}

/// __release_param and free_param: what another stream gathered is in use on this one until its work is done.
void ZeroCoordinator::release(ZeroParameter& parameter) {
  if (parameter.status != ZeroParameter::Status::available || !parameter.users.empty()) return;
  tape_.host(HostWork::zero_parameter);
  keep_secondary(parameter);
  const Storage& storage = *parameter.leaf.impl()->storage;
  if (storage.resident && storage.stream != tape_.stream) tape_.record_stream(parameter.leaf, tape_.stream);
  set_data(parameter, nothing_.at(parameter.slot->type));
  parameter.status = ZeroParameter::Status::absent;
  available_ -= parameter.elements;
}

/// Persistent parameters are given back here and gathered again behind the step. In the steady state their blocks are kept instead, so
/// that a step leaves what it found.
void ZeroCoordinator::release_all() {
  for (auto& parameter : parameters) {
    if (parameter->gather) wait(*parameter);
    parameter->users.clear();
    release(*parameter);
    if (parameter->persistent) keep_secondary(*parameter);
  }
}

void ZeroCoordinator::release_backward_leftovers() {
  while (!backward_modules_.empty()) {
    const Module* module = backward_modules_.back();
    backward_modules_.pop_back();
    ModuleState& state = states_[module];
    std::vector<ZeroParameter*> used = state.parameters;
    for (ZeroParameter* parameter : std::exchange(state.recomputed, {})) add_once(used, parameter);
    for (ZeroParameter* parameter : used) {
      drop(parameter->users, module);
      if (!parameter->persistent) release(*parameter);
    }
  }
}

}  // namespace plimsoll::program

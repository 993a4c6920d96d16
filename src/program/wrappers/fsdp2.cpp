#include "program/wrappers/fsdp2.hpp"

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops.hpp"
#include "program/wrappers/leaf.hpp"

namespace plimsoll::program {

namespace {

/// FSDPParam: one parameter, its shard and its gathered form.
struct ShardedParameter {
  std::shared_ptr<Parameter> slot;
  int dimension = 0;  ///< that is cut over the ranks
  Dims shard_sizes;   ///< of this rank, padded: every rank stores ceil(size / N) of the dimension
  std::int64_t shard_elements = 0;
  Tensor shard;     ///< what the optimizer steps
  Tensor gathered;  ///< leaf of the compute type; its storage is freed while sharded
  Tensor kept;      ///< a part of it, from its forward to its backward (reshard_after_forward=int)

  std::int64_t gathered_elements(std::int64_t ranks) const { return shard_elements * ranks; }
};

enum class TrainingState { idle, forward, pre_backward, post_backward };

}  // namespace

/// FSDPParamGroup: the parameters of a unit that are cut over the same ranks; one all-gather, one reduce-scatter.
class Fsdp2Group {
 public:
  Fsdp2Group(Fsdp2& owner, const std::vector<Module*>& modules, const Fsdp2Mesh& mesh, bool is_root);

  void add(const std::shared_ptr<Parameter>& slot, int dimension);
  void materialize_shard(const Parameter* slot);
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
  std::vector<Tensor> gather_inputs(std::int64_t elements);
  std::vector<Tensor> inputs_from_host();
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

/// FSDPState: what one call of fully_shard made; the modules' hooks are its.
class Fsdp2Unit {
 public:
  Fsdp2Unit(Fsdp2& owner, std::vector<Module*> modules, const std::vector<std::shared_ptr<Parameter>>& slots, bool is_root);

  void install_hooks();
  /// Ends the forward of a unit of which some modules did not run (_force_complete_incomplete_states).
  void complete_forward(std::vector<Tensor*>& outputs);
  void end_backward(bool manual);
  bool holds(const Module& module) const { return std::find(modules_.begin(), modules_.end(), &module) != modules_.end(); }

  std::vector<std::unique_ptr<Fsdp2Group>> groups;
  std::vector<Fsdp2Unit*> forward_prefetch, backward_prefetch;  ///< units gathered ahead by order; empty: FSDP's own rule

 private:
  void pre_forward(std::vector<Tensor*>& tensors);
  void post_forward(std::vector<Tensor*>& outputs);
  void hook_outputs(std::vector<Tensor*>& outputs);
  void pre_backward();
  void cast_inputs(std::vector<Tensor*>& tensors);
  void ran(Module& module, std::vector<Tensor*>& outputs);
  Fsdp2Group& group_on(const Fsdp2Mesh& mesh, bool is_root);
  Tape& tape() const { return owner_.tape_; }

  Fsdp2& owner_;
  std::vector<Module*> modules_;
  TrainingState state_ = TrainingState::idle;
  std::vector<Module*> modules_to_run_;  ///< whose forward is missing before the unit's own forward has ended
};

Fsdp2Group::Fsdp2Group(Fsdp2& owner, const std::vector<Module*>& modules, const Fsdp2Mesh& ranks, bool is_root)
    : mesh(ranks),
      reshard_after_forward(is_root ? owner.options_.reshard_root : owner.options_.reshard_after_forward),
      owner_(owner),
      modules_(modules) {}

void Fsdp2Group::add(const std::shared_ptr<Parameter>& slot, int dimension) {
  ShardedParameter parameter;
  parameter.slot = slot;
  parameter.dimension = dimension;
  parameter.shard_sizes = slot->sizes;
  if (parameter.shard_sizes.rank() > 0) parameter.shard_sizes[dimension] = ceil_div(slot->sizes[dimension], mesh.shard);
  parameter.shard_elements = parameter.shard_sizes.product();
  parameters.push_back(std::move(parameter));
}

Fsdp2Unit::Fsdp2Unit(Fsdp2& owner, std::vector<Module*> modules, const std::vector<std::shared_ptr<Parameter>>& slots, bool is_root)
    : owner_(owner), modules_(std::move(modules)) {
  const Fsdp2Mesh whole{owner.options_.shard, owner.options_.replicate};
  for (const auto& slot : slots) {
    const Fsdp2Placement placement = owner.options_.placement ? owner.options_.placement(*slot) : Fsdp2Placement{0, whole};
    group_on(placement.mesh, is_root).add(slot, placement.dimension);
  }
  for (auto& group : groups) group->last_of_unit = group == groups.back();
}

Fsdp2Group& Fsdp2Unit::group_on(const Fsdp2Mesh& mesh, bool is_root) {
  for (auto& group : groups)
    if (group->mesh == mesh) return *group;
  groups.push_back(std::make_unique<Fsdp2Group>(owner_, modules_, mesh, is_root));
  return *groups.back();
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
  }
}

// ---- gathering -----------------------------------------------------------------------------------------------------------

/// The shards in the compute type, flat (one foreach copy); nothing where no cast is needed and the shards themselves are copied in.
std::vector<Tensor> Fsdp2Group::gather_inputs(std::int64_t elements) {
  if (owner_.options_.offload_to_host && !has_parts()) return inputs_from_host();
  const DType type = compute_type(parameters.front());
  if (type == parameters.front().slot->type) return {};
  const Tensor flat = tape().empty({elements}, type, Category::communication_buffer);
  launch(tape(), KernelKind::elementwise, type, elements * size_of(parameters.front().slot->type), flat.bytes());
  return {flat};
}

/// Shards that live on the host come one by one, and are cast one by one.
std::vector<Tensor> Fsdp2Group::inputs_from_host() {
  std::vector<Tensor> inputs;
  for (const ShardedParameter& parameter : parameters) {
    Tensor arrived = tape().empty({parameter.shard_elements}, parameter.slot->type, Category::communication_buffer);
    tape().copy({Copy::Direction::host_to_device, arrived.bytes()}, tape().stream);
    inputs.push_back(to(std::exchange(arrived, {}), compute_type(parameter)));
  }
  return inputs;
}

void Fsdp2Group::unshard() {
  if (gather_output_ || gathered_ || parameters.empty()) return;
  const LabelScope label(tape(), modules_.front()->label);
  if (mesh.shard == 1) return;
  std::int64_t elements = 0;
  for (const ShardedParameter& parameter : parameters) elements += has_parts() ? parameter.kept.elements() : parameter.shard_elements;
  const std::int64_t ranks = has_parts() ? owner_.options_.reshard_to : mesh.shard;
  if (has_parts())  // they were made on the compute stream
    for (const StreamId stream : {owner_.copy_in_stream_, owner_.gather_stream_}) tape().wait(stream, kComputeStream);
  // FSDPCommContext.get_all_gather_streams: outside forward and backward (an explicit unshard) everything runs on the current stream.
  const bool implicit = state == TrainingState::forward || state == TrainingState::pre_backward;
  const StreamScope scope(tape(), implicit ? owner_.copy_in_stream_ : tape().stream);
  const std::vector<Tensor> inputs = gather_inputs(elements);
  gather_output_ = tape().empty({elements * ranks}, compute_type(parameters.front()), Category::communication_buffer);
  launch(tape(), KernelKind::elementwise, gather_output_.dtype(), elements * size_of(gather_output_.dtype()),
         elements * size_of(gather_output_.dtype()));
  tape().wait(owner_.gather_stream_, owner_.copy_in_stream_);
  tape().collective(
      {.kind = CollectiveKind::all_gather, .group = mesh.group, .bytes = gather_output_.bytes(), .type = gather_output_.dtype()},
      owner_.gather_stream_);
}

/// A group of one rank: each shard is cast, then copied; the cast lives until the next one exists (a Python variable).
void Fsdp2Group::copy_alone() {
  Tensor cast;
  for (ShardedParameter& parameter : parameters) {
    const DType type = compute_type(parameter);
    if (type != parameter.slot->type) cast = elementwise(tape(), {&parameter.shard}, type);
    if (!parameter.gathered) {
      const Tensor flat = tape().empty({parameter.shard_elements}, type, Category::communication_buffer);
      parameter.gathered = leaf_on(tape(), flat, parameter.slot->sizes, parameter.slot->trainable);
    } else {
      tape().allocate_storage(parameter.gathered, Category::communication_buffer);
    }
    in_place(parameter.gathered, {&parameter.shard});
  }
}

/// split_with_sizes_copy into one tensor per parameter; the first time they are made, later their storages get memory again. What is cut
/// along another dimension than the first is copied to a temporary and put together from there.
void Fsdp2Group::copy_out() {
  std::vector<std::pair<const ShardedParameter*, Tensor>> pieces;
  for (ShardedParameter& parameter : parameters) {
    const DType type = compute_type(parameter);
    if (!parameter.gathered) {
      const Tensor flat = tape().empty({parameter.gathered_elements(mesh.shard)}, type, Category::communication_buffer);
      parameter.gathered = leaf_on(tape(), flat, parameter.slot->sizes, parameter.slot->trainable);
    } else {
      tape().allocate_storage(parameter.gathered, Category::communication_buffer);
    }
    if (parameter.dimension != 0) pieces.emplace_back(&parameter, empty_like(parameter.gathered));
  }
  std::int64_t bytes = 0;
  for (const ShardedParameter& parameter : parameters) bytes += parameter.gathered_elements(mesh.shard) * size_of(compute_type(parameter));
  launch(tape(), KernelKind::elementwise, compute_type(parameters.front()), bytes, bytes);
  for (const auto& [parameter, piece] : pieces) in_place(parameter->gathered, {&piece});
}

void Fsdp2Group::wait_for_unshard() {
  if (gathered_ || parameters.empty()) return;
  const bool alone = mesh.shard == 1;
  if (!gather_output_ && !alone) return;
  const LabelScope label(tape(), modules_.front()->label);
  if (state == TrainingState::forward) owner_.deferred_all_gather_.reset();
  const bool first = !parameters.front().gathered;
  if (alone) {
    copy_alone();
  } else {
    tape().wait(kComputeStream, owner_.gather_stream_);
    copy_out();
  }
  if (first) defer_widening(false);
  gathered_ = true;
  for (ShardedParameter& parameter : parameters) {
    parameter.slot->tensor = parameter.gathered;
    parameter.kept.reset();
  }
  if (state == TrainingState::forward && !alone) {
    owner_.deferred_all_gather_ = std::move(gather_output_);  // freed after the next unit's copy-out has been issued
  }
  gather_output_.reset();
}

void Fsdp2Group::reshard() {
  if (!gathered_) return;
  if (state == TrainingState::forward && !reshard_after_forward) return;
  const bool in_parts = state == TrainingState::forward && owner_.options_.reshard_to > 0;
  for (ShardedParameter& parameter : parameters) {
    if (in_parts) keep_part(parameter);
    parameter.slot->tensor.reset();
    tape().free_storage(parameter.gathered);
  }
  gathered_ = false;
}

/// to_sharded_post_forward: a clone of the rank's part of what was gathered.
void Fsdp2Group::keep_part(ShardedParameter& parameter) {
  const DType type = compute_type(parameter);
  parameter.kept =
      tape().empty({parameter.gathered_elements(mesh.shard) / owner_.options_.reshard_to}, type, Category::communication_buffer);
  launch(tape(), KernelKind::elementwise, type, parameter.kept.bytes(), parameter.kept.bytes());
}

void Fsdp2Group::prefetch(TrainingState pass) {
  const TrainingState before = std::exchange(state, pass);
  unshard();
  state = before;
}

// ---- forward -------------------------------------------------------------------------------------------------------------

void Fsdp2Unit::install_hooks() {
  for (Module* module : modules_) {
    module->pre_forward.insert(module->pre_forward.begin(), [this](Module&, std::vector<Tensor*>& tensors) { pre_forward(tensors); });
    module->post_forward.push_back([this](Module& of, std::vector<Tensor*>& outputs) { ran(of, outputs); });
  }
}

void Fsdp2Unit::ran(Module& module, std::vector<Tensor*>& outputs) {
  const auto at = std::find(modules_to_run_.begin(), modules_to_run_.end(), &module);
  if (at == modules_to_run_.end()) return;
  modules_to_run_.erase(at);
  if (modules_to_run_.empty()) post_forward(outputs);
}

void Fsdp2Unit::cast_inputs(std::vector<Tensor*>& tensors) {
  if (!owner_.options_.cast_forward_inputs || !owner_.options_.param_dtype) return;
  for (Tensor* tensor : tensors) {
    const bool floating =
        tensor->defined() && (tensor->dtype() == DType::fp32 || tensor->dtype() == DType::bf16 || tensor->dtype() == DType::fp16);
    if (floating) *tensor = to(*tensor, *owner_.options_.param_dtype);
  }
}

void Fsdp2Unit::pre_forward(std::vector<Tensor*>& tensors) {
  if (state_ == TrainingState::pre_backward) {  // a checkpointed region runs again
    for (auto& group : groups) {
      if (group->is_gathered()) continue;
      group->unshard();
      group->wait_for_unshard();
    }
    cast_inputs(tensors);
    return;
  }
  if (modules_to_run_.empty()) modules_to_run_ = modules_;
  const bool first = std::exchange(state_, TrainingState::forward) != TrainingState::forward;
  if (first && !owner_.forward_root_) {
    owner_.forward_root_ = this;
    tape().wait(owner_.copy_in_stream_, kComputeStream);
    tape().wait(owner_.gather_stream_, kComputeStream);
  }
  cast_inputs(tensors);
  for (auto& group : groups) group->pre_forward(tensors);
  if (!first) return;
  for (Fsdp2Unit* target : forward_prefetch)
    for (auto& group : target->groups) group->prefetch(TrainingState::forward);
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
    Op op("RegisterPostBackward", inputs);
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

void Fsdp2Unit::post_forward(std::vector<Tensor*>& outputs) {
  if (state_ == TrainingState::pre_backward) return;
  complete_forward(outputs);
  if (owner_.forward_root_ != this) return;
  // Units that did not run to their end are ended with the forward of the outermost one.
  const auto& all = owner_.states_in_module_order_;
  for (auto unit = all.rbegin(); unit != all.rend(); ++unit) {
    if (*unit == this || (*unit)->modules_to_run_.empty()) continue;
    (*unit)->complete_forward(outputs);
    (*unit)->modules_to_run_.clear();
  }
  owner_.deferred_all_gather_.reset();
  owner_.forward_root_ = nullptr;
}

void Fsdp2Unit::complete_forward(std::vector<Tensor*>& outputs) {
  for (auto& group : groups) group->post_forward();
  state_ = TrainingState::idle;
  hook_outputs(outputs);
}

void Fsdp2Group::post_forward() {
  state = TrainingState::forward;
  reshard();
  post_forward_indices_.push_back(owner_.post_forward_order_.size());
  owner_.post_forward_order_.push_back(this);
  state = TrainingState::idle;
}

void Fsdp2Unit::hook_outputs(std::vector<Tensor*>& outputs) {
  if (!tape().grad_enabled) return;
  for (Tensor* output : outputs)
    if (output->defined() && output->requires_grad()) output->register_hook([this](Tensor&) { pre_backward(); });
}

// ---- backward ------------------------------------------------------------------------------------------------------------

void Fsdp2Unit::pre_backward() {
  state_ = TrainingState::pre_backward;
  owner_.queue_root_post_backward();
  for (auto& group : groups) group->pre_backward(backward_prefetch.empty());
  for (Fsdp2Unit* target : backward_prefetch)
    for (auto group = target->groups.rbegin(); group != target->groups.rend(); ++group) (*group)->prefetch(TrainingState::pre_backward);
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

/// _set_unsharded_grad_dtypes: within a backward whose gradients are reduced they stay as autograd gives them; gradients that are kept are
/// cast, and later ones arrive in the type of the reduction.
void Fsdp2Group::defer_widening(bool yes) {
  for (ShardedParameter& parameter : parameters) {
    if (!parameter.gathered) continue;
    const DType wide = owner_.options_.reduce_dtype.value_or(parameter.slot->type);
    if (size_of(wide) <= size_of(compute_type(parameter))) continue;
    Tensor& gradient = parameter.gathered.grad();
    std::optional<DType>& arriving = parameter.gathered.impl()->grad_dtype;
    if (yes) {
      if (gradient || reduce_gradients) arriving.reset();
      continue;
    }
    if (gradient && gradient.dtype() != wide) gradient = elementwise(tape(), {&gradient}, wide);
    if (gradient) Tape::categorize(gradient, Category::gradient);
    arriving = wide;
  }
}

/// _default_reduce_scatter_input_fn: gradients cut along another dimension than the first are put in the order of the ranks.
void Fsdp2Group::cut_gradients(std::vector<std::pair<ShardedParameter*, Tensor>>& gradients) {
  if (mesh.shard == 1) return;
  Tensor before;  // Python's loop variable holds the gradient that was replaced
  for (auto& [parameter, gradient] : gradients) {
    if (parameter->dimension == 0) continue;
    before = gradient;
    gradient = tape().empty(before.sizes(), before.dtype());
    in_place(gradient, {&before});
  }
}

/// foreach_reduce: the gradients side by side in the type of the reduction, reduce-scattered, and all-reduced over the replicas (HSDP).
void Fsdp2Group::reduce(std::vector<std::pair<ShardedParameter*, Tensor>>& gradients) {
  std::int64_t shard_elements = 0;
  std::int64_t bytes = 0;
  for (const auto& [parameter, gradient] : gradients) {
    shard_elements += parameter->shard_elements;
    bytes += gradient.bytes();
  }
  const DType type = owner_.options_.reduce_dtype.value_or(gradients.front().second.dtype());
  Tensor input = tape().empty({shard_elements * mesh.shard}, type, Category::communication_buffer);
  launch(tape(), KernelKind::elementwise, type, bytes, input.bytes());
  std::vector<std::pair<ShardedParameter*, Tensor>> owners;
  for (auto& [parameter, gradient] : gradients) owners.emplace_back(parameter, Tensor());
  gradients.clear();
  tape().wait(owner_.reduce_stream_, kComputeStream);

  const StreamScope scope(tape(), owner_.reduce_stream_);
  Tensor output = tape().empty({shard_elements}, type, Category::gradient);
  tape().collective({.kind = CollectiveKind::reduce_scatter, .group = mesh.group, .bytes = input.bytes(), .type = type},
                    owner_.reduce_stream_);
  StreamId post_stream = owner_.reduce_stream_;
  if (mesh.replicate > 1) {
    post_stream = owner_.replicate_stream_;
    tape().wait(post_stream, owner_.reduce_stream_);
    tape().collective({.kind = CollectiveKind::all_reduce, .group = Group::data_replicate, .bytes = output.bytes(), .type = type},
                      post_stream);
    reduce_output_kept_ = output;
  }
  const StreamScope post(tape(), post_stream);
  accumulate_shards(owners, output);
  owner_.reduce_states_.push_back({std::move(input)});
}

/// The reduced buffer becomes the shards' gradients (views, or a cast copy), or is added to those of earlier micro-batches.
void Fsdp2Group::accumulate_shards(const std::vector<std::pair<ShardedParameter*, Tensor>>& owners, const Tensor& reduced) {
  const DType type = owners.front().first->slot->type;
  Tensor output = reduced.dtype() == type ? reduced : elementwise(tape(), {&reduced}, type);
  Tape::categorize(output, Category::gradient);
  for (const auto& [parameter, unused] : owners) {
    if (owner_.options_.offload_to_host) {
      tape().copy({Copy::Direction::device_to_host, parameter->shard_elements * size_of(type)}, tape().stream);
      continue;
    }
    Tensor view = tape().view(output, parameter->shard_sizes, contiguous_strides(parameter->shard_sizes));
    Tensor& gradient = parameter->shard.grad();
    if (gradient) {
      in_place(gradient, {&gradient, &view});
    } else {
      gradient = std::move(view);
    }
  }
}

void Fsdp2Unit::end_backward(bool manual) {
  modules_to_run_.clear();
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) (*group)->end_backward(manual);
  state_ = TrainingState::idle;
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

// ---- the model -----------------------------------------------------------------------------------------------------------

Fsdp2::Fsdp2(Tape& tape, Module& root, const std::vector<std::vector<Module*>>& units, const Fsdp2Options& options)
    : tape_(tape),
      root_(root),
      options_(options),
      copy_in_stream_(tape.add_stream("all-gather copy-in")),
      gather_stream_(tape.add_stream("all-gather")),
      reduce_stream_(tape.add_stream("reduce-scatter")),
      replicate_stream_(tape.add_stream("all-reduce")) {
  // A parameter belongs to the innermost wrapped module that holds it: units are wrapped before the modules around them.
  std::unordered_set<Parameter*> managed;
  auto wrap = [&](const std::vector<Module*>& modules, bool is_root) {
    std::vector<std::shared_ptr<Parameter>> slots;
    for (Module* module : modules)
      for (auto& slot : module->all_parameters())
        if (managed.insert(slot.get()).second) slots.push_back(slot);
    units_.push_back(std::make_unique<Fsdp2Unit>(*this, modules, std::move(slots), is_root));
    return units_.back().get();
  };
  std::vector<std::pair<Module*, Fsdp2Unit*>> by_module;
  for (const auto& modules : units) {
    Fsdp2Unit* unit = wrap(modules, false);
    for (Module* module : modules) by_module.emplace_back(module, unit);
  }
  Fsdp2Unit* root_unit = wrap({&root}, true);
  by_module.emplace_back(&root, root_unit);
  for (Module* module : root.all_modules())
    for (const auto& [wrapped, unit] : by_module)
      if (wrapped == module &&
          std::find(states_in_module_order_.begin(), states_in_module_order_.end(), unit) == states_in_module_order_.end())
        states_in_module_order_.push_back(unit);
  for (auto& unit : units_) unit->install_hooks();
  for (auto& unit : units_)
    for (auto& group : unit->groups) groups_.push_back(group.get());
}

Fsdp2::~Fsdp2() = default;

void Fsdp2::materialize() {
  // Module._apply: children first, then a module's own parameters, then its buffers.
  const std::function<void(Module&)> visit = [&](Module& module) {
    for (const auto& child : module.children) visit(*child);
    const LabelScope label(tape_, module.label);
    for (const auto& slot : module.parameters)
      for (Fsdp2Group* group : groups_) group->materialize_shard(slot.get());
    for (ModuleBuffer& buffer : module.buffers) buffer.tensor = tape_.empty(buffer.sizes, buffer.type, Category::parameter);
  };
  visit(root_);
}

std::vector<Tensor> Fsdp2::shards() const {
  std::vector<Tensor> all;
  for (const auto& slot : root_.all_parameters())
    for (const Fsdp2Group* group : groups_)
      for (const ShardedParameter& parameter : group->parameters)
        if (parameter.slot == slot && std::none_of(all.begin(), all.end(), [&](const Tensor& known) {
              return known.impl() == parameter.shard.impl();  // tied
            }))
          all.push_back(parameter.shard);
  return all;
}

Fsdp2Unit& Fsdp2::unit_of(const Module& module) const {
  for (const auto& unit : units_)
    if (unit->holds(module)) return *unit;
  throw Error(ErrorCode::internal, "module '" + module.path + "' is no unit of its own");
}

void Fsdp2::set_requires_gradient_sync(bool yes) {
  for (Fsdp2Group* group : groups_) group->reduce_gradients = yes;
}
void Fsdp2::set_requires_gradient_sync(const Module& module, bool yes) {
  for (auto& group : unit_of(module).groups) group->reduce_gradients = yes;
}
void Fsdp2::set_reshard_after_forward(const Module& module, bool yes) {
  for (auto& group : unit_of(module).groups) group->reshard_after_forward = yes;
}
void Fsdp2::set_reshard_after_backward(const Module& module, bool yes) {
  for (auto& group : unit_of(module).groups) group->reshard_after_backward = yes;
}
void Fsdp2::prefetch_in_forward(const Module& module, const Module& target) { unit_of(module).forward_prefetch = {&unit_of(target)}; }
void Fsdp2::prefetch_in_backward(const Module& module, const Module& target) { unit_of(module).backward_prefetch = {&unit_of(target)}; }

void Fsdp2::unshard(const Module& module) {
  for (auto& group : unit_of(module).groups) {
    group->unshard();
    group->wait_for_unshard();
  }
}

void Fsdp2::share_shard(const Module& one, const Module& other) {
  const auto parameter_of = [&](const Module& module) -> ShardedParameter& {
    for (auto& group : unit_of(module).groups)
      for (ShardedParameter& parameter : group->parameters)
        if (parameter.slot == module.parameters.front()) return parameter;
    throw Error(ErrorCode::internal, "module '" + module.path + "' has no sharded weight");
  };
  parameter_of(one).shard = parameter_of(other).shard;
}

void Fsdp2::reshard(const Module& module) {
  for (auto& group : unit_of(module).groups) group->reshard();
}

void Fsdp2::unshard_all() {
  for (Fsdp2Unit* unit : states_in_module_order_)
    for (auto& group : unit->groups) group->unshard();
}

void Fsdp2::wait_for_unshard_all() {
  for (Fsdp2Unit* unit : states_in_module_order_)
    for (auto& group : unit->groups) group->wait_for_unshard();
}

void Fsdp2::reshard_all() {
  for (Fsdp2Unit* unit : states_in_module_order_)
    for (auto& group : unit->groups) group->reshard();
}

std::vector<Tensor> Fsdp2::gathered() const {
  std::vector<Tensor> all;
  for (const auto& slot : root_.all_parameters())
    if (slot->tensor) all.push_back(slot->tensor);
  return all;
}

void Fsdp2::queue_root_post_backward() {
  if (callback_queued_) return;
  callback_queued_ = true;
  tape_.queue_callback([this] { root_post_backward(); });
}

void Fsdp2::root_post_backward() {
  forward_root_ = nullptr;
  for (Fsdp2Unit* unit : states_in_module_order_) unit->end_backward(manual_finalization_);
  callback_queued_ = false;
  deferred_all_gather_.reset();
  if (!manual_finalization_) end_iteration();
}

void Fsdp2::end_iteration() {
  deferred_all_gather_.reset();
  tape_.wait(kComputeStream, reduce_stream_);
  for (Fsdp2Group* group : groups_) group->finish_iteration();
  post_forward_order_.clear();
  reduce_states_.clear();
}

void Fsdp2::finalize_backward() {
  for (Fsdp2Group* group : groups_) group->reduce_gradients = group->reshard_after_backward = true;
  for (auto unit = states_in_module_order_.rbegin(); unit != states_in_module_order_.rend(); ++unit)
    for (auto group = (*unit)->groups.rbegin(); group != (*unit)->groups.rend(); ++group) (*group)->finalize();
  end_iteration();
}

void Fsdp2::set_reshard_after_backward(bool yes) {
  for (Fsdp2Group* group : groups_) group->reshard_after_backward = yes;
}

}  // namespace plimsoll::program

#include "program/wrappers/fsdp/fsdp2_unit.hpp"

#include <algorithm>
#include <utility>

#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

Fsdp2Unit::Fsdp2Unit(Fsdp2& owner, std::vector<Module*> modules, const std::vector<std::shared_ptr<Parameter>>& slots, bool is_root)
    : owner_(owner), modules_(std::move(modules)) {
  for (const auto& slot : slots) {
    const Fsdp2Placement placement = owner.options_.placement_of(*slot);
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

namespace {

/// _cast_fp_tensor.
void cast_floating(std::vector<Tensor*>& tensors, DType type) {
  for (Tensor* tensor : tensors) {
    const bool floating =
        tensor->defined() && (tensor->dtype() == DType::fp32 || tensor->dtype() == DType::bf16 || tensor->dtype() == DType::fp16);
    if (floating) *tensor = to(*tensor, type);
  }
}

}  // namespace

void Fsdp2Unit::cast_inputs(std::vector<Tensor*>& tensors) {
  if (owner_.options_.cast_forward_inputs && owner_.options_.param_dtype) cast_floating(tensors, *owner_.options_.param_dtype);
}

void Fsdp2Unit::cast_outputs(std::vector<Tensor*>& tensors) {
  if (owner_.options_.output_dtype) cast_floating(tensors, *owner_.options_.output_dtype);
}

void Fsdp2Unit::pre_forward(std::vector<Tensor*>& tensors) {
  tape().host(HostWork::unit);
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
    owner_.reset_tied_shards();
    owner_.gather_behind_compute();
  }
  cast_inputs(tensors);
  for (auto& group : groups) group->pre_forward(tensors);
  if (!first) return;
  for (Fsdp2Unit* target : forward_prefetch)
    for (auto& group : target->groups) group->prefetch(TrainingState::forward);
}

void Fsdp2Unit::post_forward(std::vector<Tensor*>& outputs) {
  if (state_ == TrainingState::pre_backward) return cast_outputs(outputs);
  complete_forward(outputs);
  if (owner_.forward_root_ == this) complete_others(outputs);
  cast_outputs(outputs);
}

/// Behind the forward of the outermost unit.
void Fsdp2Unit::complete_others(std::vector<Tensor*>& outputs) {
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

void Fsdp2Unit::hook_outputs(std::vector<Tensor*>& outputs) {
  if (!tape().grad_enabled) return;
  for (Tensor* output : outputs)
    if (output->defined() && output->requires_grad()) output->register_hook([this](Tensor&) { pre_backward(); });
}

void Fsdp2Unit::pre_backward() {
  tape().host(HostWork::unit);
  state_ = TrainingState::pre_backward;
  owner_.queue_root_post_backward();
  for (auto& group : groups) group->pre_backward(backward_prefetch.empty());
  for (Fsdp2Unit* target : backward_prefetch)
    for (auto group = target->groups.rbegin(); group != target->groups.rend(); ++group) (*group)->prefetch(TrainingState::pre_backward);
}

void Fsdp2Unit::end_backward(bool manual) {
  modules_to_run_.clear();
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) (*group)->end_backward(manual);
  state_ = TrainingState::idle;
}

}  // namespace plimsoll::program

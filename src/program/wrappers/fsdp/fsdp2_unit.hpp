/// What one call of fully_shard made, and the hooks of its modules. Source: _fsdp_state.py of torch/distributed/fsdp/_fully_shard,
/// PyTorch 2.15.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "program/wrappers/fsdp/fsdp2_group.hpp"

namespace plimsoll::program {

/// FSDPState: what one call of fully_shard made; the modules' hooks are its.
class Fsdp2Unit {
 public:
  Fsdp2Unit(Fsdp2& owner, std::vector<Module*> modules, const std::vector<std::shared_ptr<Parameter>>& slots, bool is_root);

  void install_hooks();
  /// Ends the forward of a unit of which some modules did not run (_force_complete_incomplete_states).
  void complete_forward(std::vector<Tensor*>& outputs);
  void complete_others(std::vector<Tensor*>& outputs);
  void end_backward(bool manual);
  const std::vector<Module*>& modules() const { return modules_; }
  bool holds(const Module& module) const { return std::find(modules_.begin(), modules_.end(), &module) != modules_.end(); }

  std::vector<std::unique_ptr<Fsdp2Group>> groups;
  std::vector<Fsdp2Unit*> forward_prefetch, backward_prefetch;  ///< units gathered ahead by order; empty: FSDP's own rule

 private:
  void pre_forward(std::vector<Tensor*>& tensors);
  void post_forward(std::vector<Tensor*>& outputs);
  void hook_outputs(std::vector<Tensor*>& outputs);
  void pre_backward();
  void cast_inputs(std::vector<Tensor*>& tensors);
  void cast_outputs(std::vector<Tensor*>& tensors);
  void ran(Module& module, std::vector<Tensor*>& outputs);
  Fsdp2Group& group_on(const Fsdp2Mesh& mesh, bool is_root);
  Tape& tape() const { return owner_.tape_; }

  Fsdp2& owner_;
  std::vector<Module*> modules_;
  TrainingState state_ = TrainingState::idle;
  std::vector<Module*> modules_to_run_;  ///< whose forward is missing before the unit's own forward has ended
};

}  // namespace plimsoll::program

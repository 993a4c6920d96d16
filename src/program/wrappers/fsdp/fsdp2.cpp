#include "program/wrappers/fsdp/fsdp2.hpp"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/equal_layers.hpp"
#include "program/wrappers/fsdp/fsdp2_unit.hpp"

namespace plimsoll::program {

namespace {

/// _fsdp_init.py, _get_managed_modules and _get_managed_states: a module's own parameters stand behind those of its children.
void append_managed(const Module& module, std::vector<std::shared_ptr<Parameter>>& slots) {
  for (const auto& child : module.children) append_managed(*child, slots);
  slots.insert(slots.end(), module.parameters.begin(), module.parameters.end());
}

}  // namespace

Fsdp2::Fsdp2(Tape& tape, Module& root, const std::vector<std::vector<Module*>>& units, const Fsdp2Options& options)
    : tape_(tape),
      root_(root),
      options_(options),
      copied_out_(tape.new_event()),
      copy_in_stream_(tape.add_stream("all-gather copy-in")),
      gather_stream_(tape.add_stream("all-gather")),
      reduce_stream_(tape.add_stream("reduce-scatter")),
      replicate_stream_(tape.add_stream("all-reduce")) {
  // A parameter belongs to the innermost wrapped module that holds it: units are wrapped before the modules around them.
  std::unordered_set<Parameter*> managed;
  auto wrap = [&](const std::vector<Module*>& modules, bool is_root) {
    std::vector<std::shared_ptr<Parameter>> held, slots;
    for (const Module* module : modules) append_managed(*module, held);
    for (auto& slot : held) {
      const bool ignored = options_.leaves_integers && (slot->type == DType::uint8 || slot->type == DType::int8);
      if (!ignored && managed.insert(slot.get()).second) slots.push_back(std::move(slot));
    }
    units_.push_back(std::make_unique<Fsdp2Unit>(*this, modules, std::move(slots), is_root));
    return units_.back().get();
  };
  std::unordered_map<const Module*, std::vector<Fsdp2Unit*>> by_module;
  for (const auto& modules : units) {
    Fsdp2Unit* unit = wrap(modules, false);
    for (Module* module : modules) by_module[module].push_back(unit);
  }
  Fsdp2Unit* root_unit = wrap({&root}, true);
  by_module[&root].push_back(root_unit);
  std::unordered_set<const Fsdp2Unit*> known;
  for (const Module* module : root.all_modules())
    if (const auto wrapped = by_module.find(module); wrapped != by_module.end())
      for (Fsdp2Unit* unit : wrapped->second)
        if (known.insert(unit).second) states_in_module_order_.push_back(unit);
  for (auto& unit : units_) unit->install_hooks();
  for (auto& unit : units_)
    for (auto& group : unit->groups) groups_.push_back(group.get());
  for (Fsdp2Group* group : groups_)
    for (const ShardedParameter& parameter : group->parameters) {
      auto& holding = holders_[parameter.slot.get()];
      if (holding.empty() || holding.back() != group) holding.push_back(group);
    }
}

Fsdp2::~Fsdp2() = default;

const std::vector<Fsdp2Group*>& Fsdp2::holders_of(const Parameter& parameter) const {
  static const std::vector<Fsdp2Group*> kNobody;
  const auto found = holders_.find(&parameter);
  return found == holders_.end() ? kNobody : found->second;
}

void Fsdp2::materialize() {
  std::unordered_multimap<const Module*, Fsdp2Unit*> wrapped;
  for (const auto& unit : units_)
    for (const Module* module : unit->modules()) wrapped.emplace(module, unit.get());
  // Module._apply: children first, then a module's own parameters, then its buffers.
  const std::function<void(Module&)> visit = [&](Module& module) {
    for (const auto& child : module.children) visit(*child);
    const LabelScope label(tape_, module.label);
    for (const auto& slot : module.parameters)
      for (Fsdp2Group* group : holders_of(*slot)) group->materialize_shard(slot.get());
    if (options_.buffers_on_host) return;
    for (ModuleBuffer& buffer : module.buffers) buffer.tensor = tape_.empty(buffer.sizes, buffer.type, Category::parameter);
    module.materialize_constants(tape_);
    const auto [first, last] = wrapped.equal_range(&module);
    for (auto each = first; each != last; ++each)
      for (const auto& group : each->second->groups) group->pad_shards();
  };
  visit(root_);
}

void Fsdp2::load_full_state_dict() {
  std::unordered_set<const Parameter*> loaded;
  std::vector<Tensor> second;
  for (Module* module : root_.all_modules()) {
    const LabelScope label(tape_, module->label);
    for (const auto& slot : module->parameters) {
      const Tensor whole = tape_.empty(slot->sizes, slot->type, Category::temporary);
      for (Fsdp2Group* group : holders_of(*slot))
        if (loaded.insert(slot.get()).second) {
          group->materialize_shard(slot.get());
        } else {
          second.push_back(tape_.empty(group->shard_sizes(slot.get()), slot->type, Category::temporary));
        }
    }
  }
  second.clear();
  for (Fsdp2Group* group : groups_) group->pad_shards();
  for (Module* module : root_.all_modules())
    for (ModuleBuffer& buffer : module->buffers) buffer.tensor = tape_.empty(buffer.sizes, buffer.type, Category::parameter);
}

void Fsdp2::shard_loaded() {
  program::materialize(root_, tape_, Arrival::moved);
  std::vector<Tensor> whole;
  for (Fsdp2Group* group : groups_) cut_up(*group, whole);
}

void Fsdp2::shard_from_host() {
  for (const auto& unit : units_) {
    for (const auto& group : unit->groups)
      for (const ShardedParameter& parameter : group->parameters) {
        Parameter& slot = *parameter.slot;
        slot.tensor = tape_.parameter(slot.sizes, slot.type, slot.trainable);
      }
    std::vector<Tensor> whole;
    for (auto& group : unit->groups) cut_up(*group, whole);
  }
  for (Module* module : root_.all_modules())
    for (ModuleBuffer& buffer : module->buffers) buffer.tensor = tape_.empty(buffer.sizes, buffer.type, Category::parameter);
}

void Fsdp2::shard_in_place() {
  for (const auto& unit : units_) {
    std::vector<Tensor> whole;
    for (auto& group : unit->groups) cut_up(*group, whole);
  }
}

/// FSDPParam._init_sharded_param of a group's parameters; what they were is kept in `whole`.
void Fsdp2::cut_up(Fsdp2Group& group, std::vector<Tensor>& whole) {
  for (const ShardedParameter& parameter : group.parameters) whole.push_back(std::exchange(parameter.slot->tensor, {}));
  for (const ShardedParameter& parameter : group.parameters) group.materialize_shard(parameter.slot.get());
  group.pad_shards();
}

std::vector<Tensor> Fsdp2::shards() const {
  std::vector<Tensor> all;
  std::unordered_set<const TensorImpl*> known;  // of tied parameters the shard comes once
  for (const auto& slot : root_.all_parameters())
    for (const Fsdp2Group* group : holders_of(*slot))
      for (const ShardedParameter& parameter : group->parameters)
        if (parameter.slot == slot && known.insert(parameter.shard.impl()).second) all.push_back(parameter.shard);
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
void Fsdp2::prefetch_in_forward(const Module& module, const Module& target) { unit_of(module).forward_prefetch.push_back(&unit_of(target)); }
void Fsdp2::prefetch_in_backward(const Module& module, const Module& target) { unit_of(module).backward_prefetch.push_back(&unit_of(target)); }

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
  ShardedParameter& tied = parameter_of(one);
  const Tensor shared = parameter_of(other).shard;
  tied_shards_.push_back({std::exchange(tied.shard, shared), shared, tied.shard_elements});
}

/// lazy_init's reset_sharded_param: FSDP lets go of the shard that was replaced. A shard shorter than its padding is padded once more for
/// either weight, as what it lies in is not what that weight was padded into; the first weight keeps its copy, which nobody reads.
void Fsdp2::reset_tied_shards() {
  for (TiedShard& tied : tied_shards_) {
    if (std::exchange(tied.reset, true)) continue;
    if (tied.shared.elements() == tied.padded_elements) {
      tied.own.reset();
      continue;
    }
    const auto padded = [&] { return tape_.empty({tied.padded_elements}, tied.shared.dtype(), Category::parameter); };
    tied.own = padded();
    tied.shared.impl()->storage = padded().impl()->storage;
  }
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

/// Later all-gathers begin behind what the compute stream has been given until now.
void Fsdp2::gather_behind_compute() {
  for (const StreamId stream : {copy_in_stream_, gather_stream_}) tape_.wait(stream, kComputeStream);
}

/// In forward an all-gather's output is freed when the next unit's copy-out is issued, and the all-gather after that begins behind the first
/// copy-out: at most two are alive (FSDPParamGroup.wait_for_unshard).
void Fsdp2::defer_all_gather(Tensor gathered) {
  deferred_all_gather_ = std::move(gathered);
  tape_.record_event(copied_out_, kComputeStream);
}

void Fsdp2::release_deferred_all_gather() {
  if (!deferred_all_gather_) return;
  for (const StreamId stream : {copy_in_stream_, gather_stream_}) tape_.wait_event(stream, copied_out_);
  deferred_all_gather_.reset();
}

void Fsdp2::queue_root_post_backward() {
  if (callback_queued_) return;
  callback_queued_ = true;
  tape_.queue_callback([this] { root_post_backward(); });
}

/// Whether the unit's passes are written down from another's: it has neither run nor been passed by.
bool Fsdp2::is_left_out(const Fsdp2Unit& unit) const { return tape_.equal_layers && tape_.equal_layers->leaves_out(*unit.modules().front()); }

void Fsdp2::root_post_backward() {
  forward_root_ = nullptr;
  for (Fsdp2Unit* unit : states_in_module_order_)
    if (!is_left_out(*unit)) unit->end_backward(manual_finalization_);
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

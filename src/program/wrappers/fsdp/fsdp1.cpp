#include "program/wrappers/fsdp/fsdp1.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "program/ops/ops.hpp"
#include "program/optimizers/clipping.hpp"
#include "program/wrappers/fsdp/fsdp1_unit.hpp"

namespace plimsoll::program {

Fsdp1::Fsdp1(Tape& tape, Module& root, const std::vector<Module*>& units, const Fsdp1Settings& settings)
    : tape_(tape),
      root_(root),
      settings_(settings),
      pre_unshard_stream_(tape.add_stream("pre-unshard")),
      unshard_stream_(tape.add_stream("unshard")),
      reduce_stream_(tape.add_stream("post-backward")),
      replicate_stream_(settings.replicate > 1 ? tape.add_stream("all-reduce") : reduce_stream_) {
  std::unordered_set<Parameter*> managed;
  const auto wrap = [&](Module& module, bool is_root) {
    std::vector<std::shared_ptr<Parameter>> slots;
    for (auto& slot : module.all_parameters())
      if (managed.insert(slot.get()).second) slots.push_back(slot);
    units_.push_back(std::make_unique<Fsdp1Unit>(*this, module, std::move(slots), is_root));
    units_.back()->install_hooks();
    wrapped_.emplace(&module, units_.back().get());
  };
  for (Module* module : units) wrap(*module, false);
  wrap(root, true);
}

Fsdp1::~Fsdp1() = default;

void Fsdp1::materialize() {
  if (settings_.loaded_on_device) program::materialize(root_, tape_, Arrival::moved);
  for (auto& unit : units_) unit->materialize();
}

/// DefaultState._get_gradient_predivide_factor: about the root of the number of ranks, so that sums neither overflow nor underflow.
std::int64_t Fsdp1::predivision() const {
  std::int64_t factor = 1;
  while (settings_.world % factor == 0 && settings_.world > factor * factor) factor *= 2;
  return factor;
}

/// _lazy_init: buffers take the compute type, flat parameters get their buffers, the root's first.
void Fsdp1::initialize() {
  if (std::exchange(initialized_, true)) return;
  for (Module* module : root_.all_modules()) {
    const LabelScope label(tape_, module->label);
    for (ModuleBuffer& buffer : module->buffers) {
      const DType type = buffer.tensor.dtype();
      if (!settings_.casts_buffers || !is_floating(type) || settings_.param_dtype.value_or(type) == type) continue;
      buffer.tensor = elementwise(tape_, {&buffer.tensor}, *settings_.param_dtype);
      Tape::categorize(buffer.tensor, Category::parameter);
    }
  }
  units_.back()->initialize();
  for (auto unit = units_.begin(); unit + 1 != units_.end(); ++unit) (*unit)->initialize();
}

std::vector<Tensor> Fsdp1::shards() const {
  std::vector<Tensor> all;
  if (!settings_.use_orig_params) {
    for (const Module* module : root_.all_modules())
      if (const auto unit = wrapped_.find(module); unit != wrapped_.end()) unit->second->collect_shard(all);
    return all;
  }
  std::unordered_map<const Parameter*, Tensor> originals;
  for (const auto& unit : units_) unit->collect_originals(originals);
  for (const auto& slot : root_.all_parameters())
    if (const auto original = originals.find(slot.get()); original != originals.end()) all.push_back(original->second);
  return all;
}

void Fsdp1::after_step() {
  units_.back()->forget_gradient();  // zero_grad() or _root_pre_forward, the root's handle first
  for (auto unit = units_.begin(); unit + 1 != units_.end(); ++unit) (*unit)->forget_gradient();
}

void Fsdp1::rest() {
  for (auto& unit : units_) unit->rest();
}

void Fsdp1::fetch() {
  for (auto& unit : units_) unit->fetch();
}

void Fsdp1::clip_grad_norm(const std::vector<Tensor>& parameters) {
  if (!zero_scalar_) zero_scalar_ = tape_.empty({}, DType::fp32, Category::parameter);
  if (settings_.sharded)
    clip_flat_grad_norm(tape_, parameters);
  else
    program::clip_grad_norm(tape_, parameters);
}

void Fsdp1::begin_forward() {
  for (auto& unit : units_) unit->begin_forward();
}

void Fsdp1::finish_backward() {
  if (synchronize_) {
    tape_.wait(kComputeStream, reduce_stream_);
    if (replicate_stream_ != reduce_stream_) tape_.wait(kComputeStream, replicate_stream_);
  }
  for (auto& unit : units_) unit->end_backward();
  post_forward_order_.clear();
  callback_queued_ = false;
}

}  // namespace plimsoll::program

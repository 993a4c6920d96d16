#include "program/modules/megatron/te_offload.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "program/op.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

/// A saved tensor of an offloaded layer: on the device, or gone to the host.
struct TeOffload::Slot {
  Tensor tensor;
  Dims sizes;
  DType type = DType::fp32;
  bool requires_grad = false;
  std::shared_ptr<void> host;  ///< its copy there, between leaving and coming back
};

struct TeOffload::Saved final : Packed {
  Tensor kept;
  std::shared_ptr<Slot> slot;  ///< null: kept
};

TeOffload::TeOffload(Tape& tape, std::size_t layers, std::size_t offloaded, const std::vector<Tensor>& parameters)
    : tape_(tape), out_(tape.add_stream("offload")), in_(tape.add_stream("reload")), host_(tape, true), slots_(offloaded) {
  for (const Tensor& parameter : parameters) parameters_.insert(parameter.impl());
  const std::size_t each = layers / offloaded, longer = layers % offloaded;
  for (std::size_t i = 0; i < offloaded; ++i) windows_.push_back(each * (i + 1) - 1 + std::min(i + 1, longer));
}

/// mark_activation_offload: what the modules themselves save, and SwiGLUFunction (cpu_offload_input).
bool TeOffload::leaves(const Tensor& tensor) const {
  constexpr std::array<std::string_view, 6> kModules{"te_layernorm_linear", "te_linear", "te_grouped_linear",
                                                     "te_attention",        "te_norm",   "swiglu"};
  const std::string_view module = tape_.operator_name;
  return layer_ < slots_.size() && std::find(kModules.begin(), kModules.end(), module) != kModules.end() && !is_parameter(tensor);
}

bool TeOffload::is_parameter(const Tensor& tensor) const { return parameters_.count(tensor.impl()) > 0; }

std::unique_ptr<SavedTensorHooks::Packed> TeOffload::pack(const Tensor& tensor) {
  auto saved = std::make_unique<Saved>();
  if (!is_parameter(tensor)) Tape::categorize(tensor, Category::activation);
  if (leaves(tensor)) {
    saved->slot = std::make_shared<Slot>(Slot{tensor, tensor.sizes(), tensor.dtype(), tensor.requires_grad(), {}});
    slots_[layer_].push_back(saved->slot);
  } else {
    saved->kept = tensor;
  }
  return saved;
}

Tensor TeOffload::unpack(Packed& packed) {
  const Saved& saved = static_cast<Saved&>(packed);
  if (!saved.slot) return saved.kept;
  Tensor tensor = std::exchange(saved.slot->tensor, {}).detach();
  tensor.set_requires_grad(saved.slot->requires_grad);
  return tensor;
}

Tensor TeOffload::commit(const Tensor& hidden) {
  PythonFunction op("offload_commit", {&hidden});
  commit_forward();
  Tensor same = hidden.detach();
  return op.done(same, [self = shared_from_this()](BackwardCall& b) {
    self->commit_backward();
    b.give(0, b.grad());
  });
}

/// on_group_commit_forward.
void TeOffload::commit_forward() {
  if (layer_ == 0) {
    tape_.wait(out_, kComputeStream);
    offload(0);
  }
  if (done_ < slots_.size() && windows_[done_] == layer_) {
    tape_.wait(out_, kComputeStream);
    tape_.wait(kComputeStream, out_);
    for (const auto& slot : slots_[done_]) slot->tensor.reset();
    if (++done_ < slots_.size()) offload(done_);
  }
  ++layer_;
}

/// on_group_commit_backward.
void TeOffload::commit_backward() {
  --layer_;
  if (done_ > 0 && windows_[done_ - 1] == layer_) {
    tape_.wait(in_, kComputeStream);
    tape_.wait(kComputeStream, in_);
    reload(done_ - 1);
    if (done_ > 1) --done_;
  }
  if (layer_ > 0) return;
  tape_.wait(kComputeStream, in_);
  done_ = 0;
  for (auto& slots : slots_) slots.clear();
}

void TeOffload::offload(std::size_t layer) {
  for (const auto& slot : slots_[layer]) {
    tape_.copy({.direction = Copy::Direction::device_to_host, .bytes = slot->tensor.bytes()}, out_);
    slot->host = host_.hold(slot->tensor.bytes());
  }
}

void TeOffload::reload(std::size_t layer) {
  const StreamScope scope(tape_, in_);
  for (const auto& slot : slots_[layer]) {
    slot->tensor = tape_.empty(slot->sizes, slot->type, Category::activation);
    tape_.copy({.direction = Copy::Direction::host_to_device, .bytes = slot->tensor.bytes()}, in_);
    slot->host.reset();
  }
}

}  // namespace plimsoll::program

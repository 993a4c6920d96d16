#include "program/offload_activations.hpp"

#include <utility>

#include "program/running_node.hpp"

namespace plimsoll::program {

/// What stands for a saved tensor: itself, or what it takes to bring it back.
struct OffloadActivations::Saved final : Packed {
  Tensor kept;
  Id id = 0;
  Dims sizes;
  DType type = DType::fp32;
  bool requires_grad = false;
  std::shared_ptr<void> host;
};

OffloadActivations::OffloadActivations(Tape& tape, Options options)
    : tape_(tape), options_(std::move(options)), stream_(options_.streams ? tape.add_stream("offload") : kComputeStream), host_(tape, true) {
  for (const Tensor& parameter : options_.parameters) parameters_.insert(parameter.impl());
}

bool OffloadActivations::stays(const Tensor& tensor) const {
  return tensor.bytes() < options_.least_bytes || parameters_.count(tensor.impl()) > 0;
}

void OffloadActivations::copy_to_host(const Tensor& tensor) {
  if (options_.streams) tape_.wait(stream_, kComputeStream);
  tape_.copy({.direction = Copy::Direction::device_to_host, .bytes = tensor.bytes()}, stream_);
}

std::unique_ptr<SavedTensorHooks::Packed> OffloadActivations::pack(const Tensor& tensor) {
  in_backward_ = false;
  auto saved = std::make_unique<Saved>();
  saved->id = ++next_;
  if (stays(tensor)) {
    saved->kept = tensor;
    return saved;
  }
  saved->sizes = tensor.sizes();
  saved->type = tensor.dtype();
  saved->requires_grad = tensor.requires_grad();
  while (options_.streams && !leaving_.empty() && leaving_.front().first + options_.kept_in_forward <= saved->id) {
    tape_.wait(kComputeStream, stream_);
    leaving_.pop_front();
  }
  copy_to_host(tensor);
  saved->host = host_.hold(tensor.bytes());
  if (options_.streams) leaving_.emplace_back(saved->id, tensor);
  return saved;
}

Tensor OffloadActivations::bring_back(const Saved& saved) {
  const StreamScope scope(tape_, stream_);
  Tensor tensor = tape_.empty(saved.sizes, saved.type, Category::activation);
  tape_.copy({.direction = Copy::Direction::host_to_device, .bytes = tensor.bytes()}, stream_);
  return tensor;
}

/// The first tensor of a backward pass: at its end, what was brought back goes.
void OffloadActivations::begin_backward() {
  if (std::exchange(in_backward_, true)) return;
  tape_.queue_callback([self = shared_from_this()] {
    self->returned_.clear();
    self->node_ = nullptr;
  });
}

Tensor OffloadActivations::unpack(Packed& packed) {
  Saved& saved = static_cast<Saved&>(packed);
  if (options_.streams) begin_backward();
  if (saved.kept) return saved.kept;
  Tensor tensor;
  if (!options_.streams) {
    tensor = bring_back(saved);
  } else {
    Node* node = running_node();
    std::vector<Id> done;
    if (std::exchange(node_, node) != node)
      for (const auto& [id, held] : returned_) done.push_back(id);
    bool brought_back = true;
    for (const auto& [id, held] : leaving_) {
      if (id != saved.id) continue;
      tensor = held.detach();
      brought_back = false;
    }
    if (brought_back) {
      tensor = bring_back(saved);
      tape_.wait(kComputeStream, stream_);
      returned_.emplace(saved.id, tensor);
    }
    after_node(*node, saved.id, brought_back, std::move(done), tensor);
  }
  if (saved.requires_grad) {
    tensor = tensor.detach();
    tensor.set_requires_grad(true);
  }
  return tensor;
}

/// The node's post-hook: a result that shares the tensor's memory takes it over, what earlier nodes brought back goes.
void OffloadActivations::after_node(Node& node, Id id, bool brought_back, std::vector<Id> done, const Tensor& tensor) {
  const StorageRef storage = tensor.impl()->storage;
  const Storage* const memory = storage.get();
  node.post_hooks.push_back([self = shared_from_this(), id, brought_back, done = std::move(done), memory](const Gradients& outputs) {
    for (const Tensor& output : outputs) {
      if (!brought_back || !output || output.impl()->storage.get() != memory) continue;
      self->tape_.record_stream(output, kComputeStream);
      self->returned_.erase(id);
    }
    self->leaving_.clear();
    if (!done.empty()) self->tape_.wait(self->stream_, kComputeStream);
    for (const Id earlier : done) self->returned_.erase(earlier);
  });
}

}  // namespace plimsoll::program

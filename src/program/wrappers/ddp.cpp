#include "program/wrappers/ddp.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>

#include "program/op.hpp"
#include "program/optimizer.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kBroadcastBucket = 250LL << 20;  // DistributedDataParallel.broadcast_bucket_size
constexpr std::size_t kBroadcastsInFlight = 2;          // comm.cpp, broadcast_coalesced

}  // namespace

std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<Tensor>& tensors, const std::vector<std::int64_t>& limits) {
  struct Open {
    std::vector<std::size_t> members;
    std::int64_t bytes = 0;
    std::size_t limit = 0;
  };
  std::vector<std::vector<std::size_t>> buckets;
  std::map<DType, Open> open;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Open& bucket = open[tensors[i].dtype()];
    bucket.members.push_back(i);
    bucket.bytes += tensors[i].bytes();
    if (bucket.bytes < limits[bucket.limit]) continue;
    buckets.push_back(std::move(bucket.members));
    bucket.members.clear();
    bucket.bytes = 0;
    bucket.limit = std::min(bucket.limit + 1, limits.size() - 1);
  }
  for (auto& [type, bucket] : open)
    if (!bucket.members.empty()) buckets.push_back(std::move(bucket.members));
  std::sort(buckets.begin(), buckets.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
  return buckets;
}

Ddp::Ddp(Tape& tape, Module& root, const DdpSettings& options)
    : tape_(tape), options_(options), stream_(tape.add_stream("all-reduce")), parameters_(trainable_tensors(root)) {
  std::vector<Tensor> states;
  for (const auto& parameter : root.all_parameters()) states.push_back(parameter->tensor);
  for (Module* module : root.all_modules())
    for (const ModuleBuffer& buffer : module->buffers) buffers_.push_back(buffer.tensor);
  states.insert(states.end(), buffers_.begin(), buffers_.end());
  broadcast(states);
  // Until gradients have arrived once there is a single bucket.
  make_buckets(assign_buckets(parameters_, {std::numeric_limits<std::int64_t>::max()}));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    accumulators_.push_back(tape_.gradient_edge(parameters_[i]).function);
    accumulators_.back()->post_hooks.push_back([this, i](const Gradients&) { gradient_ready(i); });
  }
}

/// c10d::broadcast_coalesced: flat copies of up to 250 MiB, two of them at a time.
void Ddp::broadcast(const std::vector<Tensor>& tensors) {
  std::deque<Tensor> in_flight;
  for (const auto& bucket : assign_buckets(tensors, {kBroadcastBucket})) {
    if (in_flight.size() >= kBroadcastsInFlight) in_flight.pop_front();
    std::int64_t elements = 0;
    for (std::size_t i : bucket) elements += tensors[i].elements();
    Tensor flat = tape_.empty({elements}, tensors[bucket.front()].dtype(), Category::communication_buffer);
    launch(tape_, KernelKind::elementwise, flat.dtype(), flat.bytes(), flat.bytes());
    tape_.collective({.kind = CollectiveKind::broadcast, .group = Group::world, .bytes = flat.bytes(), .type = flat.dtype()}, stream_);
    in_flight.push_back(std::move(flat));
  }
}

void Ddp::make_buckets(const std::vector<std::vector<std::size_t>>& assignment) {
  buckets_.clear();
  place_.assign(parameters_.size(), {});
  for (const auto& members : assignment) {
    Bucket bucket;
    bucket.parameters = members;
    for (std::size_t i : members) {
      place_[i] = {buckets_.size(), bucket.elements};
      bucket.elements += parameters_[i].elements();
    }
    bucket.flat = tape_.empty({bucket.elements}, parameters_[members.front()].dtype(), Category::communication_buffer);
    buckets_.push_back(std::move(bucket));
  }
}

/// Reducer::rebuild_buckets: by the order in which gradients arrived, the old buckets freed first.
void Ddp::rebuild_buckets() {
  std::vector<Tensor> arrived;
  for (std::size_t i : arrival_) arrived.push_back(parameters_[i]);
  auto assignment = assign_buckets(arrived, {options_.first_bucket_cap, options_.bucket_cap});
  for (auto& members : assignment)
    for (std::size_t& member : members) member = arrival_[member];
  make_buckets(assignment);
  rebuilt_ = true;
}

void Ddp::before_forward(bool synchronize) {
  synchronize_ = synchronize;
  if (synchronize && !buffers_.empty()) broadcast(buffers_);
  for (Bucket& bucket : buckets_) bucket.pending = bucket.parameters.size();
}

void Ddp::after_step() {
  if (!rebuilt_ && arrival_.size() == parameters_.size()) rebuild_buckets();
}

/// Reducer::autograd_hook: the gradient is copied into its place in the bucket (and becomes a view of it); a full bucket is reduced.
void Ddp::gradient_ready(std::size_t parameter) {
  if (!synchronize_) return;
  if (!rebuilt_) arrival_.push_back(parameter);
  Bucket& bucket = buckets_[place_[parameter].first];
  Tensor& gradient = parameters_[parameter].grad();
  launch(tape_, KernelKind::elementwise, gradient.dtype(), gradient.bytes(), gradient.bytes());
  if (options_.gradient_as_bucket_view) gradient = tape_.view(bucket.flat, gradient.sizes(), gradient.strides());
  if (--bucket.pending > 0) return;
  tape_.wait(stream_, kComputeStream);
  tape_.collective(
      {.kind = CollectiveKind::all_reduce, .group = Group::data_replicate, .bytes = bucket.flat.bytes(), .type = bucket.flat.dtype()},
      stream_);
  const bool last = std::all_of(buckets_.begin(), buckets_.end(), [](const Bucket& other) { return other.pending == 0; });
  if (!last) return;
  tape_.wait(kComputeStream, stream_);
  if (options_.gradient_as_bucket_view) return;
  for (const Tensor& reduced : parameters_) tape_.copy({Copy::Direction::device_to_device, reduced.bytes()}, kComputeStream);
}

}  // namespace plimsoll::program

#include "program/wrappers/ddp.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/python_function.hpp"

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

Ddp::Ddp(Tape& tape, Module& root, const DdpSettings& options) : tape_(tape), options_(options), stream_(tape.add_stream("all-reduce")) {
  std::vector<Tensor> states;
  for (const auto& parameter : root.all_parameters()) {
    if (options_.ignored.count(parameter.get()) > 0) continue;
    states.push_back(parameter->tensor);
    if (parameter->trainable) parameters_.push_back(parameter->tensor);
  }
  for (Module* module : root.all_modules())
    for (const ModuleBuffer& buffer : module->buffers) buffers_.push_back(buffer.tensor);
  states.insert(states.end(), buffers_.begin(), buffers_.end());
  broadcast(states);
  make_buckets(first_assignment());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    accumulators_.push_back(tape_.gradient_edge(parameters_[i]).function);
    accumulators_.back()->post_hooks.push_back([this, i](const Gradients&) { gradient_ready(i); });
  }
  if (!options_.static_graph && !options_.find_unused_parameters) return;
  used_parameters_ = tape_.empty({static_cast<std::int64_t>(parameters_.size())}, DType::int32, Category::communication_buffer);
  root.post_forward.push_back([this](Module&, std::vector<Tensor*>& outputs) { pass_through_sink(outputs); });
}

/// A single bucket until gradients have arrived once; buckets of their final size, in reverse, where they never will be made again.
std::vector<std::vector<std::size_t>> Ddp::first_assignment() const {
  if (options_.static_graph || !options_.find_unused_parameters)
    return assign_buckets(parameters_, {std::numeric_limits<std::int64_t>::max()});
  auto assignment = assign_buckets(parameters_, {options_.first_bucket_cap, options_.bucket_cap});
  std::reverse(assignment.begin(), assignment.end());
  return assignment;
}

/// c10d::broadcast_coalesced: flat copies of up to 250 MiB, two of them at a time.
void Ddp::broadcast(const std::vector<Tensor>& tensors) {
  std::deque<Tensor> in_flight;
  for (const auto& bucket : assign_buckets(tensors, {kBroadcastBucket})) {
    if (in_flight.size() >= kBroadcastsInFlight) in_flight.pop_front();
    Tensor flat = tensors[bucket.front()].detach();  // alone it is sent as it is
    if (bucket.size() > 1) {
      std::int64_t elements = 0;
      for (std::size_t i : bucket) elements += tensors[i].elements();
      flat = tape_.empty({elements}, flat.dtype(), Category::communication_buffer);
      concatenate(flat, {flat});
    }
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
    if (!options_.gradient_as_bucket_view) continue;
    for (std::size_t i : members)
      if (parameters_[i].grad()) fill_bucket(i);
  }
}

bool Ddp::rebuild_is_due() const { return !rebuilt_ && !arrival_.empty() && arrival_.size() == parameters_.size(); }

/// Reducer::rebuild_buckets: by the order in which gradients arrived, which rank 0 tells the others; the old buckets are freed first.
void Ddp::rebuild_buckets() {
  std::vector<Tensor> arrived;
  for (std::size_t i : arrival_) arrived.push_back(parameters_[i]);
  auto assignment = assign_buckets(arrived, {options_.first_bucket_cap, options_.bucket_cap});
  for (auto& members : assignment)
    for (std::size_t& member : members) member = arrival_[member];
  {
    const Tensor indices = tape_.empty({static_cast<std::int64_t>(parameters_.size()) + 1}, DType::int32, Category::communication_buffer);
    const Tensor sizes = tape_.empty({static_cast<std::int64_t>(assignment.size())}, DType::int32, Category::communication_buffer);
  }
  make_buckets(assignment);
  rebuilt_ = true;
}

void Ddp::before_forward(bool synchronize) {
  tape_.host(HostWork::unit);
  check_reduction();
  if (rebuild_is_due()) rebuild_buckets();
  synchronize_ = synchronize;
  if (!synchronize) return;
  if (!buffers_.empty()) broadcast(buffers_);
  for (Bucket& bucket : buckets_) bucket.pending = bucket.parameters.size();
  marked_unused_ = false;
}

/// Reducer::ensure_prior_reduction_finished.
void Ddp::check_reduction() const {
  if (std::none_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) { return bucket.pending > 0; })) return;
  if (!options_.find_unused_parameters) fail("DDP fails where a trained parameter gets no gradient", "ddp.static_graph", "true");
  refuse("DDP's search for parameters that get no gradient is modelled only where it finds none", "ddp.static_graph", "true");
}

void Ddp::after_step() {
  if (rebuild_is_due()) rebuild_buckets();
}

/// _DDPSink: copies of the module's outputs, whose backward asks for the reduction at the end of a static graph's first backward.
void Ddp::pass_through_sink(std::vector<Tensor*>& outputs) {
  if (counted_ || !synchronize_ || !tape_.grad_enabled) return;  // a pass without a graph, as of adapters switched off, has no sink
  List<const Tensor*> inputs;
  for (Tensor* output : outputs)
    if (output->defined() && output->requires_grad()) inputs.push_back(output);
  std::vector<Tensor> copies;
  {
    PythonFunction op("_DDPSink", inputs);
    for (const Tensor* input : inputs) {
      copies.push_back(tape_.empty(input->sizes(), input->dtype()));
      in_place(copies.back(), {input});
    }
    op.finish_all(copies, [this, count = inputs.size()](BackwardCall& call) {
      if (options_.static_graph) tape_.queue_callback([this] { reduce_all_at_once(); });
      for (std::size_t i = 0; i < count; ++i)
        if (call.grad(i).defined()) call.give(i, call.grad(i));
    });
  }
  std::size_t next = 0;
  for (Tensor* output : outputs)
    if (output->defined() && output->requires_grad()) *output = std::move(copies[next++]);
}

/// Reducer::autograd_hook.
void Ddp::gradient_ready(std::size_t parameter) {
  if (!synchronize_ || (options_.static_graph && !counted_)) return;
  if (!std::exchange(marked_unused_, true))
    for (std::size_t unused : unused_) mark_ready(unused);
  mark_ready(parameter);
}

/// Reducer::mark_variable_ready.
void Ddp::mark_ready(std::size_t parameter) {
  const bool orders = options_.static_graph || !options_.find_unused_parameters;
  if (orders && !rebuilt_ && arrival_.size() < parameters_.size()) arrival_.push_back(parameter);
  fill_bucket(parameter);
  Bucket& bucket = buckets_[place_[parameter].first];
  if (--bucket.pending > 0) return;
  reduce(bucket);
  if (std::all_of(buckets_.begin(), buckets_.end(), [](const Bucket& other) { return other.pending == 0; })) finish_backward();
}

/// Reducer::mark_variable_ready_dense: the gradient is copied into its place in the bucket, and becomes a view of it; zeros take the place
/// of one that did not come.
void Ddp::fill_bucket(std::size_t parameter) {
  Tensor& gradient = parameters_[parameter].grad();
  if (!gradient) return in_place(parameters_[parameter], {});
  in_place(gradient, {&gradient});
  if (!options_.gradient_as_bucket_view) return;
  gradient = tape_.view(buckets_[place_[parameter].first].flat, gradient.sizes(), gradient.strides());
}

/// Reducer::run_allreduce_hook, which asks for the future of what it began.
void Ddp::reduce(const Bucket& bucket) {
  tape_.wait(stream_, kComputeStream);
  const DType type = options_.accumulators.value_or(bucket.flat.dtype());
  tape_.collective(
      {.kind = CollectiveKind::all_reduce, .group = Group::data_replicate, .bytes = bucket.elements * size_of(type), .type = type}, stream_);
  if (!options_.accumulators && tape_.torch.futures_wait_for_collectives()) tape_.wait(kComputeStream, stream_);
}

/// Reducer::delay_all_reduce: behind a static graph's first backward, which only told who takes part.
void Ddp::reduce_all_at_once() {
  counted_ = true;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad()) unused_.push_back(i);
    fill_bucket(i);
  }
  for (Bucket& bucket : buckets_) {
    reduce(bucket);
    bucket.pending = 0;
  }
  finish_backward();
}

/// Reducer::finalize_backward: what was reduced is copied back where gradients are no views.
void Ddp::finish_backward() {
  if (!options_.accumulators) tape_.wait(kComputeStream, stream_);
  if (options_.gradient_as_bucket_view) return;
  for (const Tensor& reduced : parameters_)
    if (reduced.grad()) tape_.copy({Copy::Direction::device_to_device, reduced.bytes()}, kComputeStream);
}

}  // namespace plimsoll::program

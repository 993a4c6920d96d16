// Gathering a group's parameters, and letting go of what was gathered.
#include <algorithm>
#include <numeric>
#include <utility>

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/optimizers/optimizer.hpp"
#include "program/wrappers/fsdp/fsdp2_group.hpp"
#include "program/wrappers/launch_tables.hpp"
#include "program/wrappers/leaf.hpp"

namespace plimsoll::program {

namespace {

/// torch._foreach_copy_ of so many elements of each tensor.
void copy_each(Tape& tape, const std::vector<std::int64_t>& elements, DType from, DType into) {
  constexpr int kLists = 2, kWritten = 1;
  launch_foreach(tape, elements, from, kLists, kWritten, {.function = MultiTensor::Function::copy, .made = 1, .written_as = into});
}

}  // namespace

/// What this rank gives to a gather of a parameter.
std::int64_t Fsdp2Group::own_elements(const ShardedParameter& parameter) const {
  return has_parts() ? parameter.kept.elements() : parameter.shard_elements;
}

/// The copy into what is gathered, parameter by parameter; bytes where the parameters have several types.
void Fsdp2Group::copy_in(DType type) {
  std::vector<std::int64_t> elements;
  for (const ShardedParameter& parameter : parameters)
    elements.push_back(own_elements(parameter) * (type == DType::uint8 ? size_of(compute_type(parameter)) : 1));
  copy_each(tape(), elements, type, type);
}

/// _get_param_all_gather_inputs: the shards that are cast, flat in the compute type (one foreach copy); the others are copied in themselves.
std::vector<Tensor> Fsdp2Group::gather_inputs() {
  if (owner_.options_.offload_to_host && !has_parts()) return inputs_from_host();
  std::vector<std::int64_t> cast;
  DType from = DType::fp32;
  for (const ShardedParameter& parameter : parameters) {
    if (compute_type(parameter) == parameter.slot->type) continue;
    from = parameter.slot->type;
    cast.push_back(own_elements(parameter));
  }
  if (cast.empty()) return {};
  const DType into = *owner_.options_.param_dtype;
  const Tensor flat = tape().empty({std::accumulate(cast.begin(), cast.end(), std::int64_t{0})}, into, Category::communication_buffer);
  copy_each(tape(), cast, from, into);
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

/// What a gather is written to: `elements` of every rank in the compute type; bytes where the parameters have several types.
Tensor Fsdp2Group::empty_gather_output(std::int64_t elements, std::int64_t ranks) {
  const DType type = compute_type(parameters.front());
  const bool one_type =
      std::all_of(parameters.begin(), parameters.end(), [&](const ShardedParameter& parameter) { return compute_type(parameter) == type; });
  if (one_type) return tape().empty({elements * ranks}, type, Category::communication_buffer);
  std::int64_t bytes = 0;
  for (const ShardedParameter& parameter : parameters) bytes += parameter.shard_elements * size_of(compute_type(parameter));
  return tape().empty({bytes * ranks}, DType::uint8, Category::communication_buffer);
}

void Fsdp2Group::unshard() {
  if (gather_output_ || gathered_ || parameters.empty()) return;
  const LabelScope label(tape(), modules_.front()->label);
  if (mesh.shard == 1) return;
  std::int64_t elements = 0;
  for (const ShardedParameter& parameter : parameters) elements += own_elements(parameter);
  const std::int64_t ranks = has_parts() ? owner_.options_.reshard_to : mesh.shard;
  if (has_parts())  // they were made on the compute stream
    owner_.gather_behind_compute();
  // FSDPCommContext.get_all_gather_streams: outside forward and backward (an explicit unshard) everything runs on the current stream.
  const bool implicit = state == TrainingState::forward || state == TrainingState::pre_backward;
  const StreamScope scope(tape(), implicit ? owner_.copy_in_stream_ : tape().stream);
  tape().operator_name = "fsdp::all_gather_copy_in";
  const std::vector<Tensor> inputs = gather_inputs();
  gather_output_ = empty_gather_output(elements, ranks);
  copy_in(gather_output_.dtype());
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
    tape().copy({Copy::Direction::device_to_device, parameter.shard_elements * size_of(type)}, tape().stream);
  }
}

/// split_with_sizes_copy into one tensor per parameter; the first time they are made, later their storages get memory again. What is cut
/// along another dimension than the first is copied to a temporary and put together from there.
void Fsdp2Group::copy_out() {
  tape().operator_name = "fsdp::split_with_sizes_copy";
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
  const std::int64_t ranks = has_parts() ? owner_.options_.reshard_to : mesh.shard;
  std::int64_t bytes = 0;
  std::vector<std::int64_t> chunks;
  for (const ShardedParameter& parameter : parameters) {
    const std::int64_t whole = parameter.gathered_elements(mesh.shard) * size_of(compute_type(parameter));
    bytes += whole;
    chunks.push_back(whole / ranks);
  }
  {
    const Tensor table = copy_out_table(tape(), chunks, ranks);
    multi_tensor(tape(), MultiTensor::Function::copy, static_cast<std::int64_t>(chunks.size()), bytes, {DType::uint8}, {DType::uint8});
  }
  for (const auto& [parameter, piece] : pieces) in_place(parameter->gathered, {&piece});
}

void Fsdp2Group::wait_for_unshard() {
  if (gathered_ || parameters.empty()) return;
  const bool alone = mesh.shard == 1;
  if (!gather_output_ && !alone) return;
  const LabelScope label(tape(), modules_.front()->label);
  if (state == TrainingState::forward) owner_.release_deferred_all_gather();
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
  if (state == TrainingState::forward && !alone)
    owner_.defer_all_gather(std::move(gather_output_));
  else if (!alone)
    owner_.gather_behind_compute();
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
  in_place(parameter.kept, {&parameter.kept});
}

void Fsdp2Group::prefetch(TrainingState pass) {
  const TrainingState before = std::exchange(state, pass);
  unshard();
  state = before;
}

}  // namespace plimsoll::program

// How parameters come together: the collectives that a fetch launches, and the wait for them.
#include <algorithm>
#include <optional>
#include <utility>

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/wrappers/deepspeed/coordinator.hpp"
#include "program/wrappers/deepspeed/quantized.hpp"

namespace plimsoll::program {

/// One all-gather that was launched: of one parameter into its own memory, or of several into flat tensors that are taken apart later.
struct ZeroGather {
  struct Flat {
    std::vector<ZeroParameter*> parameters;  ///< of one type
    Tensor tensor;
  };
  std::vector<ZeroParameter*> parameters;
  std::vector<Flat> flats;
  Tensor bytes;                 ///< zero_quantized_weights: all parameters'
  Tensor input;                 ///< copy of a shard that lives on the host
  Tensor scales, dequantized;   ///< of those bytes
  std::optional<EventId> done;  ///< behind its collectives, until it is waited for
  bool complete = false;
};

void ZeroCoordinator::set_data(ZeroParameter& parameter, const Tensor& data) { parameter.leaf.impl()->storage = data.impl()->storage; }

/// __all_gather_params.
void ZeroCoordinator::gather(const std::vector<ZeroParameter*>& wanted) {
  std::vector<ZeroParameter*> within_node, everywhere;
  for (ZeroParameter* parameter : wanted) {
    if (parameter->status != ZeroParameter::Status::absent) continue;
    (parameter->secondary ? within_node : everywhere).push_back(parameter);
    available_ += parameter->elements;
  }
  for (auto* absent : {&within_node, &everywhere}) {
    std::sort(absent->begin(), absent->end(), [](const ZeroParameter* a, const ZeroParameter* b) { return a->id < b->id; });
    if (!absent->empty()) launch_gather(*absent);
  }
}

/// Of hpZ's two groups both gather buffers of the same size: padding is for all ranks.
void ZeroCoordinator::launch_gather(const std::vector<ZeroParameter*>& absent) {
  auto handle = std::make_shared<ZeroGather>();
  const StreamScope scope(tape_, gather_stream_);
  for (ZeroParameter* parameter : absent) {
    parameter->status = ZeroParameter::Status::in_flight;
    parameter->gather = handle;
    in_flight_.push_back(parameter);
  }
  handle->parameters = absent;
  if (settings_.ranks == 1) {
    for (ZeroParameter* parameter : absent) {
      const Tensor shard = shard_on_device(*parameter);
      set_data(*parameter, shard ? shard : parameter->resident);
    }
    handle->complete = true;
    return;
  }
  tape_.host(HostWork::zero_gather);
  if (settings_.json.zero_quantized_weights) {
    gather_quantized(handle);
  } else if (absent.size() == 1 || settings_.json.allgather_sequential) {
    for (ZeroParameter* parameter : absent) gather_one(*parameter, handle);
  } else if (settings_.json.use_all_reduce_for_fetch_params && !absent.front()->secondary) {
    all_reduce_coalesced(absent);
  } else {
    gather_coalesced(handle);
  }
}

/// stage3_use_all_reduce_for_fetch_params: one tensor of zeros with the rank's shards in their places, summed; parameters are views of it.
void ZeroCoordinator::all_reduce_coalesced(const std::vector<ZeroParameter*>& absent) {
  std::int64_t elements = 0;
  for (const ZeroParameter* parameter : absent) elements += parameter->shard * settings_.ranks;
  const Tensor flat = zeros(tape_, {elements}, type_);
  Tape::categorize(flat, Category::communication_buffer);
  for (ZeroParameter* parameter : absent) {
    const auto direction = settings_.offload_parameters ? Copy::Direction::host_to_device : Copy::Direction::device_to_device;
    tape_.copy({direction, parameter->shard * size_of(type_)}, tape_.stream);
    set_data(*parameter, flat);
  }
  tape_.collective({.kind = CollectiveKind::all_reduce, .group = Group::data_shard, .bytes = flat.bytes(), .type = type_}, tape_.stream);
}

void ZeroCoordinator::gather_one(ZeroParameter& parameter, const std::shared_ptr<ZeroGather>& handle) {
  const DType type = parameter.slot->type;
  const Tensor whole = tape_.empty({parameter.shard * settings_.ranks}, type, Category::communication_buffer);
  Tensor shard = shard_on_device(parameter);
  all_gather(whole.bytes(), type, handle);
  handle->input = std::move(shard);
  set_data(parameter, whole);
}

/// _all_gather_dtype, for 16-bit types before fp32: the shards of all parameters of a type behind one another, from every rank.
void ZeroCoordinator::gather_coalesced(const std::shared_ptr<ZeroGather>& handle) {
  for (const bool wide : {false, true}) {
    ZeroGather::Flat flat;
    std::int64_t elements = 0;
    for (ZeroParameter* parameter : handle->parameters) {
      if ((parameter->slot->type == DType::fp32) != wide) continue;
      flat.parameters.push_back(parameter);
      elements += parameter->shard;
    }
    if (flat.parameters.empty()) continue;
    const DType type = flat.parameters.front()->slot->type;
    flat.tensor = tape_.empty({elements * settings_.ranks}, type, Category::communication_buffer);
    std::vector<Tensor> shards;
    for (const ZeroParameter* parameter : flat.parameters) shards.push_back(shard_on_device(*parameter));
    pointwise(tape_, Pointwise::Form::concatenate, {packed(elements, type)}, {packed(elements, type)});
    drop_list(shards);
    all_gather(flat.tensor.bytes(), type, handle);
    handle->flats.push_back(std::move(flat));
  }
}

/// The quantized part of _all_gather_sequential and _all_gather_coalesced: bytes and scales are gathered, the latter's input is held.
void ZeroCoordinator::gather_quantized(const std::shared_ptr<ZeroGather>& handle) {
  const bool within_node = static_cast<bool>(handle->parameters.front()->secondary), several = handle->parameters.size() > 1;
  const int ranks = within_node ? std::min(settings_.json.zero_hpz_partition_size, settings_.ranks) : settings_.ranks;
  std::int64_t elements = 0;
  for (const ZeroParameter* parameter : handle->parameters) elements += within_node ? parameter->secondary.elements() : parameter->shard;
  handle->bytes = tape_.empty({elements * ranks}, DType::int8, Category::communication_buffer);
  QuantizedWeights quantized;
  {
    std::vector<Tensor> shards;
    Tensor together;
    if (several) {
      for (const ZeroParameter* parameter : handle->parameters) shards.push_back(within_node ? Tensor() : shard_on_device(*parameter));
      together = tape_.empty({elements}, type_, Category::communication_buffer);
      pointwise(tape_, Pointwise::Form::concatenate, {operand(together)}, {operand(together)});
      drop_list(shards);
    }
    const bool on_host = settings_.offload_parameters && !within_node && !several;
    quantized = quantize_weights(tape_, elements, on_host || type_ != DType::fp16);
  }
  const auto scales = [&] { return tape_.empty({quantized.scales.elements() * ranks}, DType::fp32, Category::communication_buffer); };
  if (several) handle->scales = scales();
  all_gather(handle->bytes.bytes(), type_, handle);
  if (!several) handle->scales = scales();
  all_gather(handle->scales.bytes(), type_, handle);
  handle->input = std::move(quantized.scales);
}

/// Behind a quantized gather: the bytes become fp16, and that the weights' type; several parameters are cut out of one fp16 tensor first.
void ZeroCoordinator::dequantize(ZeroGather& handle) {
  if (handle.parameters.size() == 1) {
    ZeroParameter& parameter = *handle.parameters.front();
    const Tensor half = dequantize_weights(tape_, parameter.elements);
    set_data(parameter, converted(half, type_));
    return;
  }
  handle.dequantized = dequantize_weights(tape_, handle.bytes.elements());
  for (ZeroParameter* parameter : handle.parameters) {
    const Tensor half = tape_.empty(parameter->slot->sizes, DType::fp16, Category::communication_buffer);
    pointwise(half, {&half});
    set_data(*parameter, converted(half, type_));
  }
}

/// ProcessGroupNCCL holds a collective's input until it is waited for, or until the next one is launched after its end.
void ZeroCoordinator::all_gather(std::int64_t bytes, DType type, const std::shared_ptr<ZeroGather>& handle) {
  if (collective_stream_ != tape_.stream) tape_.wait(collective_stream_, tape_.stream);
  tape_.collective({.kind = CollectiveKind::all_gather, .group = Group::data_shard, .bytes = bytes, .type = type}, collective_stream_);
  if (collective_stream_ != tape_.stream) {
    if (!handle->done) handle->done = take_event();
    tape_.record_event(*handle->done, collective_stream_);
  }
  if (const auto before = launched_.lock()) before->input.reset();
  launched_ = handle;
}

/// One that nobody waits for any more, or a new one.
EventId ZeroCoordinator::take_event() {
  if (free_events_.empty()) return tape_.new_event();
  const EventId event = free_events_.back();
  free_events_.pop_back();
  return event;
}

/// The handle's wait: a coalesced gather is taken apart into one new tensor per parameter.
void ZeroCoordinator::wait(ZeroParameter& parameter) {
  const std::shared_ptr<ZeroGather> handle = std::move(parameter.gather);
  parameter.gather.reset();
  in_flight_.erase(std::remove(in_flight_.begin(), in_flight_.end(), &parameter), in_flight_.end());
  const StreamScope scope(tape_, gather_stream_);
  if (handle->done) {
    tape_.wait_event(tape_.stream, *handle->done);
    free_events_.push_back(*handle->done);
    handle->done.reset();
  }
  handle->input.reset();
  if (handle->scales && !handle->complete) {
    dequantize(*handle);
  } else if (!handle->complete) {
    for (const ZeroGather::Flat& flat : handle->flats)
      for (ZeroParameter* member : flat.parameters) {
        const Tensor whole = tape_.empty(member->slot->sizes, member->slot->type, Category::communication_buffer);
        pointwise(tape_, Pointwise::Form::concatenate, {operand(whole)}, {operand(whole)});
        set_data(*member, whole);
      }
  }
  handle->complete = true;
  for (ZeroParameter* member : handle->parameters)
    if (member->status == ZeroParameter::Status::in_flight) member->status = ZeroParameter::Status::available;
}

void ZeroCoordinator::gather_persistent() {
  tape_.operator_name = "gather persistent parameters";
  std::vector<ZeroParameter*> wanted;
  for (const auto& parameter : parameters)
    if (parameter->persistent && parameter->status == ZeroParameter::Status::absent) wanted.push_back(parameter.get());
  std::vector<Tensor> shards, gathered;
  for (const ZeroParameter* parameter : wanted) shards.push_back(shard_on_device(*parameter));
  for (const ZeroParameter* parameter : wanted)
    gathered.push_back(settings_.ranks == 1
                           ? shards[gathered.size()]
                           : tape_.empty({parameter->shard * settings_.ranks}, parameter->slot->type, Category::communication_buffer));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const DType type = wanted[i]->slot->type;
    tape_.collective({.kind = CollectiveKind::all_gather,
                      .group = Group::data_shard,
                      .bytes = wanted[i]->shard * settings_.ranks * size_of(type),
                      .type = type},
                     tape_.stream);
    set_data(*wanted[i], gathered[i] ? gathered[i] : wanted[i]->resident);
    wanted[i]->status = ZeroParameter::Status::available;
  }
  for (auto& parameter : parameters) parameter->secondary.reset();
}

}  // namespace plimsoll::program

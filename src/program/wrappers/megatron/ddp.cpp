#include "program/wrappers/megatron/ddp.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "framework/parameter_layout.hpp"
#include "program/op.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// A piece of a flat buffer in a parameter's shape; no view to autograd.
Tensor piece(const Tensor& buffer, const Dims& sizes) {
  Tensor part = buffer.detach();
  part.impl()->sizes = sizes;
  part.impl()->strides = contiguous_strides(sizes);
  return part;
}

}  // namespace

MegatronDdp::MegatronDdp(Tape& tape, const std::vector<std::shared_ptr<Parameter>>& parameters, const Parameter* shared_embedding,
                         const MegatronDdpOptions& options, StreamId side)
    : tape_(tape), options_(options), stream_(options.ranks > 1 ? tape.add_stream("data parallel") : kComputeStream) {
  // Dense parameters first, then the experts'; a buffer per type of the parameters, in order of appearance.
  for (const bool expert : {false, true}) {
    std::vector<std::pair<DType, std::vector<std::shared_ptr<Parameter>>>> kinds;
    for (const auto& parameter : parameters) {
      if (parameter->expert != expert || !parameter->trainable) continue;
      auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const auto& each) { return each.first == parameter->type; });
      if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {parameter->type, {}});
      kind->second.push_back(parameter);
    }
    for (const auto& kind : kinds) add_buffer(kind.second, expert ? nullptr : shared_embedding, expert, side);
  }
}

void MegatronDdp::add_buffer(const std::vector<std::shared_ptr<Parameter>>& parameters, const Parameter* shared_embedding, bool expert,
                             StreamId side) {
  auto made = std::make_unique<MegatronParameterBuffer>();
  MegatronParameterBuffer& buffer = *made;
  buffers_.push_back(std::move(made));
  buffer.expert = expert;
  buffer.ranks = expert ? options_.expert_ranks : options_.ranks;
  std::vector<std::int64_t> elements;
  std::vector<bool> alone;
  for (const auto& parameter : parameters) {
    elements.push_back(parameter->sizes.product());
    alone.push_back(options_.distributed_optimizer && parameter.get() == shared_embedding);
  }
  const framework::MegatronBuffer layout = framework::megatron_buffer(elements,
                                                                      {.distributed_optimizer = options_.distributed_optimizer,
                                                                       .ranks = buffer.ranks,
                                                                       .bucket_size = options_.bucket_size,
                                                                       .pad_for_high_nccl_busbw = options_.pad_for_high_nccl_busbw},
                                                                      alone);
  buffer.elements = layout.elements();
  for (const auto& range : layout.buckets) buffer.buckets.push_back({.begin = range.begin, .end = range.end});
  const LabelScope label(tape_, tape_.intern("param_and_grad_buffer"));
  {
    const StreamScope stream(tape_, side);
    if (parameters.front()->type == DType::fp8) {
      buffer.weights_apart = options_.weights_apart;
      buffer.packed = options_.packed;
    }
    if (options_.distributed_optimizer && !buffer.weights_apart)
      buffer.param_data = tape_.empty({buffer.elements / buffer.packed}, parameters.front()->type, Category::parameter);
    buffer.grad_data = tape_.empty({buffer.elements}, options_.grad_dtype, Category::gradient);
  }
  std::size_t bucket = 0;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    Parameter& parameter = *parameters[i];
    if (options_.distributed_optimizer && !buffer.weights_apart) {
      const std::optional<DType> gradient = parameter.tensor.impl()->grad_dtype;
      parameter.tensor = piece(buffer.param_data, parameter.sizes);
      parameter.tensor.set_requires_grad(true);
      parameter.tensor.impl()->grad_dtype = gradient;
    }
    while (layout.parameters[i].begin >= buffer.buckets[bucket].end) ++bucket;
    ++buffer.buckets[bucket].parameters;
    buckets_[parameters[i].get()] = {&buffer, bucket};
    buffer.parameters.push_back({.parameter = parameters[i],
                                 .main_grad = piece(buffer.grad_data, parameter.sizes),
                                 .begin = layout.parameters[i].begin,
                                 .end = layout.parameters[i].end,
                                 .bucket = bucket});
  }
  for (std::size_t i = 0; i < buffer.parameters.size(); ++i) register_hook(buffer, i);
}

void MegatronDdp::register_hook(MegatronParameterBuffer& buffer, std::size_t index) {
  const NodeRef accumulator = tape_.gradient_edge(buffer.parameters[index].parameter->tensor).function;
  accumulator->post_hooks.push_back([this, &buffer, index](const Gradients&) { gradient_ready(buffer, buffer.parameters[index]); });
  accumulators_.push_back(accumulator);
}

/// _make_backward_post_hook: the gradient is added to main_grad and dropped.
void MegatronDdp::gradient_ready(MegatronParameterBuffer& buffer, BufferedParameter& entry) {
  Tensor& gradient = entry.parameter->tensor.grad();
  if (!options_.already_added(entry.parameter->tensor)) in_place(entry.main_grad, {&entry.main_grad, &gradient});
  gradient.reset();
  if (!options_.overlap_grad_reduce || !synchronizing_) return;
  MegatronParameterBuffer::Bucket& bucket = buffer.buckets[entry.bucket];
  if (++bucket.pending == bucket.parameters) start_grad_sync(buffer, bucket);
}

/// The host waits twice: it asks whether the norm is no number (torch.isnan), then whether it is infinite (torch.isinf, of the absolute).
void MegatronDdp::check_grads(const MegatronParameterBuffer& buffer, const MegatronParameterBuffer::Bucket& bucket) {
  const Tensor gradients = piece(buffer.grad_data, {bucket.end - bucket.begin});
  const Tensor norm = reduce(gradients, {true}, false, gradients.dtype());
  {
    const Tensor is_nan = elementwise(tape_, {&norm}, DType::boolean);
    tape_.read_back();
  }
  const Tensor absolute = elementwise(tape_, {&norm}, norm.dtype());
  const Tensor is_infinite = elementwise(tape_, {&absolute}, DType::boolean);
  tape_.read_back();
}

void MegatronDdp::start_grad_sync(const MegatronParameterBuffer& buffer, const MegatronParameterBuffer::Bucket& bucket) {
  if (options_.check_for_nan_in_grad) check_grads(buffer, bucket);
  if (buffer.ranks == 1) return;
  tape_.wait(stream_, kComputeStream);
  tape_.collective({.kind = options_.distributed_optimizer ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                    .group = buffer.expert ? Group::expert_data : Group::data_shard,
                    .bytes = (bucket.end - bucket.begin) * size_of(options_.grad_dtype),
                    .type = options_.grad_dtype},
                   stream_);
}

void MegatronDdp::zero_grad_buffer() {
  for (const auto& buffer : buffers_) {
    in_place(buffer->grad_data, {});
    for (auto& bucket : buffer->buckets) bucket.pending = 0;
  }
}

void MegatronDdp::finish_grad_sync() {
  for (const auto& buffer : buffers_) {
    for (const auto& bucket : buffer->buckets) {
      if (bucket.pending != bucket.parameters) start_grad_sync(*buffer, bucket);
    }
  }
  if (options_.ranks > 1) tape_.wait(kComputeStream, stream_);
}

void MegatronDdp::gather_parameters() {
  if (!options_.distributed_optimizer || options_.ranks == 1) return;
  if (options_.overlap_param_gather) {
    for (const auto& buffer : buffers_)
      for (auto& bucket : buffer->buckets) bucket.weights = MegatronParameterBuffer::Bucket::Weights::elsewhere;
    return;
  }
  tape_.wait(stream_, kComputeStream);
  for (const auto& buffer : buffers_)
    for (const auto& bucket : buffer->buckets) gather(*buffer, bucket);
  tape_.wait(kComputeStream, stream_);
  for (const auto& buffer : buffers_)
    for (const auto& bucket : buffer->buckets) take_weights(*buffer, bucket);
}

void MegatronDdp::gather(const MegatronParameterBuffer& buffer, const MegatronParameterBuffer::Bucket& bucket) {
  if (buffer.ranks == 1) return;
  const DType type = buffer.weights_apart ? DType::bf16 : buffer.param_data.dtype();
  tape_.collective({.kind = CollectiveKind::all_gather,
                    .group = buffer.expert ? Group::expert_data : Group::data_shard,
                    .bytes = (bucket.end - bucket.begin) * size_of(type) / buffer.packed,
                    .type = type},
                   stream_);
}

/// _post_param_sync: each weight is cast into both of its copies, and the gradients' buffer is zero again.
void MegatronDdp::take_weights(const MegatronParameterBuffer& buffer, const MegatronParameterBuffer::Bucket& bucket) {
  if (!buffer.weights_apart || buffer.ranks == 1) return;
  tape_.operator_name = "_post_param_sync";
  for (const BufferedParameter& entry : buffer.parameters) {
    if (entry.begin < bucket.begin || entry.begin >= bucket.end) continue;
    const std::int64_t elements = entry.end - entry.begin;
    row_wise(tape_, RowWise::Function::quantize, entry.parameter->sizes[0], elements / entry.parameter->sizes[0],
             {packed(elements, DType::bf16)}, {packed(elements, DType::fp8), packed(elements, DType::fp8)});
  }
  pointwise(tape_, Pointwise::Form::map, {}, {packed(bucket.end - bucket.begin, DType::bf16)});
}

void MegatronDdp::hook_gathers(const MegatronFsdpModules& modules) {
  if (!options_.overlap_param_gather || !options_.distributed_optimizer || options_.ranks == 1) return;
  for (const auto& buffer : buffers_)
    for (auto& bucket : buffer->buckets) bucket.gathered = tape_.new_event();
  for (const std::vector<Module*>* list : {&modules.layers, &modules.outside}) {
    for (Module* module : *list) {
      module->pre_forward.push_back([this](Module& called, std::vector<Tensor*>&) {
        for (const auto& parameter : called.all_parameters()) finish_gather(*parameter);
      });
    }
  }
}

void MegatronDdp::start_param_sync() {
  if (!options_.overlap_param_gather || !options_.distributed_optimizer || options_.ranks == 1) return;
  for (const auto& buffer : buffers_)
    for (std::size_t bucket = 0; bucket < buffer->buckets.size(); ++bucket) start_gather(*buffer, bucket);
}

/// start_param_sync(force_sync=False) of one bucket.
void MegatronDdp::start_gather(MegatronParameterBuffer& buffer, std::size_t index) {
  MegatronParameterBuffer::Bucket& bucket = buffer.buckets[index];
  if (bucket.weights != MegatronParameterBuffer::Bucket::Weights::elsewhere) return;
  bucket.weights = MegatronParameterBuffer::Bucket::Weights::under_way;
  tape_.wait(stream_, kComputeStream);
  gather(buffer, bucket);
  tape_.record_event(bucket.gathered, stream_);
}

/// finish_param_sync: buckets are in the reverse order of the modules, so the one before is needed next.
void MegatronDdp::finish_gather(const Parameter& parameter) {
  const auto place = buckets_.find(&parameter);
  if (place == buckets_.end()) return;
  auto& [buffer, index] = place->second;
  MegatronParameterBuffer::Bucket& bucket = buffer->buckets[index];
  if (bucket.weights == MegatronParameterBuffer::Bucket::Weights::here) return;
  start_gather(*buffer, index);
  tape_.wait_event(kComputeStream, bucket.gathered);
  bucket.weights = MegatronParameterBuffer::Bucket::Weights::here;
  take_weights(*buffer, bucket);
  if (index > 0 && !options_.align_param_gather) start_gather(*buffer, index - 1);
}

}  // namespace plimsoll::program

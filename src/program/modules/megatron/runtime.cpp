#include "program/modules/megatron/runtime.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "program/kernels.hpp"

namespace plimsoll::program {

Tensor reshaped(const Tensor& x, const Dims& sizes) {
  Tensor y = x.detach();
  y.impl()->sizes = sizes;
  y.impl()->strides = contiguous_strides(sizes);
  return y;
}

std::int64_t row_count(const Tensor& x) { return x.elements() / x.size(-1); }

Dims with_last(const Dims& sizes, std::int64_t last) {
  Dims other = sizes;
  other[-1] = last;
  return other;
}

// ---- MegatronRuntime ------------------------------------------------------------------------------------------------------

MegatronRuntime::MegatronRuntime(Tape& tape, const MegatronRuntimeOptions& options)
    : tape_(tape), options_(options), stream_(options.tensor_parallel > 1 ? tape.add_stream("tensor parallel") : kComputeStream) {
  options_.sequence_parallel = options.sequence_parallel && options.tensor_parallel > 1;
}

Tensor MegatronRuntime::global_buffer(const Dims& sizes, DType type) {
  Tensor& buffer = buffers_[type];
  if (!buffer || buffer.elements() < sizes.product()) {
    const LabelScope label(tape_, tape_.intern("global memory buffer"));
    Tensor larger = tape_.empty({sizes.product()}, type, Category::communication_buffer);
    buffer = std::move(larger);
  }
  return reshaped(buffer, sizes);
}

Tensor MegatronRuntime::dummy_gradient(const Tensor& weight) {
  const LabelScope label(tape_, tape_.intern("dummy weight gradient"));
  const auto make = [&] {
    return tape_.empty(weight.sizes(), weight.dtype() == DType::fp8 ? DType::bf16 : weight.dtype(), Category::gradient);
  };
  added_.insert(weight.impl());
  if (!options_.keeps_dummies) return make();
  Tensor& dummy = dummies_[{weight.size(0), weight.size(1), weight.dtype()}];
  if (!dummy) dummy = make();
  return dummy.detach();
}

Tensor MegatronRuntime::quantized_weight(const Tensor& weight, bool transposed) {
  const TeQuantization& quantization = *quantization_;
  if (!quantization.enabled || (transposed && !quantization.transposes)) return {};
  if (!transposed && weight.dtype() == DType::fp8) return {};  // it is what is asked for
  const LabelScope label(tape_, tape_.intern("8-bit weights"));
  if (transposed && weight.dtype() == DType::fp8 && !options_.keeps_transposes) {
    Tensor turned = tape_.empty(weight.sizes(), DType::fp8, Category::workspace);
    pointwise(Pointwise::Form::fused, {&weight}, {&turned});
    return turned;
  }
  auto& [straight, turned] = quantized_[weight.impl()];
  Tensor& copy = transposed ? turned : straight;
  if (!copy) copy = tape_.empty({quantization.stored(weight.elements())}, DType::fp8, Category::parameter);
  return copy;
}

void MegatronRuntime::make_scales(const Tensor& weight) {
  const LabelScope label(tape_, tape_.intern("8-bit weights"));
  const auto bytes = [this](std::int64_t count) { return tape_.empty({count}, DType::fp8, Category::parameter); };
  const std::int64_t scales = quantization_->scales(weight.elements());
  if (scales > 0) scales_.push_back(bytes(scales));
  if (quantization_->apart()) quantized_[weight.impl()].second = bytes(quantization_->stored(weight.elements()));
}

void MegatronRuntime::defer(std::function<void()> product) {
  const auto run = [this, &recipe = *quantization_, module = tape_.module_label, name = tape_.operator_name, product = std::move(product)] {
    const QuantizationScope scope(*this, recipe);
    const LabelScope label(tape_, module);
    tape_.operator_name = name;
    product();
  };
  deferred_->push_back(run);
}

QuantizationScope::QuantizationScope(MegatronRuntime& runtime, const Module& module) : runtime_(runtime), outer_(runtime.quantization_) {
  const auto own = runtime.recipes_.find(&module);
  if (own != runtime.recipes_.end()) runtime.quantization_ = own->second;
}

QuantizationScope::QuantizationScope(MegatronRuntime& runtime, const TeQuantization& recipe)
    : runtime_(runtime), outer_(runtime.quantization_) {
  runtime.quantization_ = &recipe;
}

namespace {

constexpr int kTeStreams = 4;  // get_num_cublas_streams

/// get_cublas_workspace_size_bytes: 32 MiB from Hopper on and 1 KiB for what nvfp4's products need beside it, before 4 MiB; on AMD 32 MiB,
/// and 64 on the MI350s.
std::int64_t te_workspace_bytes(const TargetDevice& device) {
  constexpr std::int64_t kMiB = 1 << 20;
  if (device.amd()) return (device.is_gfx("gfx95") ? 64 : 32) * kMiB;
  return device.from(90) ? 32 * kMiB + 1024 : 4 * kMiB;
}

Tensor te_workspace(Tape& tape) {
  const LabelScope label(tape, tape.intern("Transformer Engine's GEMM workspace"));
  return tape.empty({te_workspace_bytes(tape.device)}, DType::uint8, Category::workspace);
}

}  // namespace

void MegatronRuntime::reserve_gemm_workspace() {
  if (!gemm_workspace_) gemm_workspace_ = te_workspace(tape_);
}

void MegatronRuntime::log_auxiliary_loss() {
  const Tensor unscaled = tape_.empty({}, DType::fp32);
  if (!auxiliary_losses_) auxiliary_losses_ = tape_.empty({options_.layers_of_model}, DType::fp32, Category::workspace);
}

void MegatronRuntime::reserve_grouped_workspaces() {
  if (!grouped_workspaces_.empty()) return;
  for (int i = 0; i < kTeStreams; ++i) grouped_workspaces_.push_back(te_workspace(tape_));
}

StreamId MegatronRuntime::context_stream() {
  if (!context_stream_) context_stream_ = tape_.add_stream("context parallel");
  return *context_stream_;
}

void MegatronRuntime::exchange(const Collective& collective) {
  if (!options_.overlaps_exchanges || alone_) return tape_.collective(collective, kComputeStream);
  if (!exchange_stream_) {
    exchange_stream_ = tape_.add_stream("expert parallel");
    for (EventId& event : exchanged_) event = tape_.new_event();
  }
  tape_.wait(*exchange_stream_, kComputeStream);
  tape_.collective(collective, *exchange_stream_);
  tape_.record_event(exchanged_[exchanges_ % 2], *exchange_stream_);
  ++exchanges_;
  if (exchanges_ > 1) tape_.wait_event(kComputeStream, exchanged_[exchanges_ % 2]);
}

void MegatronRuntime::passes_alone(bool alone) {
  alone_ = alone;
  if (!alone || exchanges_ == 0) return;
  tape_.wait_event(kComputeStream, exchanged_[(exchanges_ - 1) % 2]);
  exchanges_ = 0;
}

void MegatronRuntime::collective_async(CollectiveKind kind, std::int64_t bytes, DType type) {
  if (tp() == 1) return;
  tape_.wait(stream_, kComputeStream);
  tape_.collective({.kind = kind, .group = Group::tensor, .bytes = bytes, .type = type, .expected = user_buffers()}, stream_);
}

void MegatronRuntime::wait() {
  if (tp() > 1) tape_.wait(kComputeStream, stream_);
}

std::optional<EventId> MegatronRuntime::collective_event(CollectiveKind kind, std::int64_t bytes, DType type) {
  if (tp() == 1) return std::nullopt;
  collective_async(kind, bytes, type);
  const auto [event, made] = events_.try_emplace(kind, EventId{});
  if (made) event->second = tape_.new_event();
  tape_.record_event(event->second, stream_);
  return event->second;
}

void MegatronRuntime::await(Awaited& pending) {
  if (pending.done) tape_.wait_event(kComputeStream, *pending.done);
  pending.done.reset();
}

void MegatronRuntime::collective(CollectiveKind kind, std::int64_t bytes, DType type) {
  collective_async(kind, bytes, type);
  wait();
}

}  // namespace plimsoll::program

// Time of kernels bound by the bytes that they move, in common: issue, traffic and cache; and of those of which only their bytes are known.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "cost/memory_time.hpp"
#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

/// Time in which a streaming kernel at full bandwidth would move its half-performance size.
constexpr double kHalfPerformanceSeconds = 3e-6;

const StreamingCurve* curve_of(const Accelerator& device, std::string_view kernels) {
  for (const StreamingCurve& curve : device.streaming)
    if (curve.kernels == kernels) return &curve;
  return nullptr;
}

/// On the line through the two points around `bytes`; the last line goes on.
Seconds on_curve(const StreamingCurve& curve, Bytes bytes) {
  std::size_t above = 1;
  while (above + 1 < curve.points.size() && curve.points[above].bytes < bytes) ++above;
  const auto &from = curve.points[above - 1], &to = curve.points[above];
  const double at = static_cast<double>(bytes.count - from.bytes.count) / static_cast<double>(to.bytes.count - from.bytes.count);
  return from.time + (to.time - from.time) * at;
}

}  // namespace

namespace cost {

double streaming_bandwidth(const Accelerator& device) { return device.memory_bandwidth.value.value * device.memory_efficiency.value; }

Seconds issue_time(const Accelerator& device, double instructions) {
  const KernelConstants& constants = kernel_constants();
  const double lanes = device.is_amd() ? constants.amd_lanes : constants.nvidia_lanes;
  return Seconds(device.paces.issue.value * instructions / (lanes * device.compute_units * device.clock.value.value));
}

double cold_share(const Accelerator& device, double bytes) {
  const CacheLaw& cache = kernel_constants().cache;
  const double share = bytes / static_cast<double>(device.last_level_cache.value.count);
  return std::clamp((share - cache.held) / (cache.gone - cache.held), 0.0, 1.0);
}

Seconds traffic_time(const Accelerator& device, double bytes, double cold) {
  const double memory = streaming_bandwidth(device);
  const double cached = kernel_constants().cache.bytes_per_clock * device.compute_units * device.clock.value.value;
  return Seconds(bytes * (cold / memory + (1 - cold) / std::max(cached, memory)));
}

Seconds traffic_time(const Accelerator& device, double bytes, KernelKind kernels) {
  if (const StreamingCurve* curve = curve_of(device, name_of(kernels)))
    return on_curve(*curve, Bytes(static_cast<std::int64_t>(bytes))) - curve->points.front().time;
  return traffic_time(device, bytes, cold_share(device, bytes));
}

Seconds overlapped(Seconds issue, Seconds traffic) { return Seconds(std::hypot(issue.value, traffic.value)); }

}  // namespace cost

Seconds memory_bound_time(const Accelerator& device, Bytes bytes, std::string_view kernels) {
  if (bytes.count <= 0) return Seconds();
  if (const StreamingCurve* curve = curve_of(device, kernels)) return on_curve(*curve, bytes);
  const double half_size = device.memory_bandwidth.value.value * kHalfPerformanceSeconds;
  return Seconds((static_cast<double>(bytes.count) + half_size) / cost::streaming_bandwidth(device));
}

Seconds kernel_gap(const Accelerator&) { return cost::kernel_constants().gap; }
Seconds kernel_gap_in_graph(const Accelerator&) { return cost::kernel_constants().gap_in_graph; }

Seconds fill_time(const Accelerator& device, Bytes bytes, DType type) {
  const cost::KernelLaw& law = cost::kernel_constants().fill;
  const double elements = static_cast<double>(bytes.count) / static_cast<double>(size_of(type));
  const Seconds written = bytes / device.memory_bandwidth.value;
  return law.start + std::max(written, cost::issue_time(device, elements * law.instructions));
}

Seconds device_copy_time(const Accelerator& device, Bytes bytes) {
  const Seconds start = cost::kernel_constants().pointwise.contiguous.start;
  return start + cost::traffic_time(device, 2 * static_cast<double>(bytes.count), KernelKind::elementwise);
}

/// By its class: arithmetic where it says some that weighs more than its bytes.
Seconds price(const Unspecified& kernel, const Accelerator& device) {
  const double bytes = static_cast<double>(kernel.bytes_read + kernel.bytes_written);
  const Seconds memory = cost::kernel_constants().pointwise.contiguous.start + cost::traffic_time(device, bytes, kernel.kind);
  const MathType math = math_of(kernel.type);
  const bool backward = kernel.kind == KernelKind::attention_backward;
  if (kernel.kind == KernelKind::attention || backward)
    return std::max(memory, attention_time(device, math, Flops(kernel.flops), backward));
  const bool multiplies = kernel.kind == KernelKind::gemm || kernel.kind == KernelKind::convolution;
  if (!multiplies) return memory;
  const Seconds moved = kernel.flops > 0 ? (1 / cost::kernel_constants().generated_products) * memory : memory;
  return std::max(moved, device.gemm.start.value + Flops(kernel.flops) / device.sustained(math));
}

}  // namespace plimsoll

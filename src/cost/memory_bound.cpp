// Time of kernels bound by the bytes that they move.
#include <algorithm>
#include <string_view>

#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

/// Time in which a streaming kernel at full bandwidth would move its half-performance size.
constexpr double kHalfPerformanceSeconds = 3e-6;

double streaming_bandwidth(const Accelerator& device) { return device.memory_bandwidth.value.value * device.memory_efficiency.value; }

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

Seconds bound_by_bytes(const Kernel& kernel, const Accelerator& device) {
  return memory_bound_time(device, Bytes(kernel.bytes()), name_of(kernel.kind()));
}

}  // namespace

Seconds memory_bound_time(const Accelerator& device, Bytes bytes, std::string_view kernels) {
  if (bytes.count <= 0) return Seconds();
  if (const StreamingCurve* curve = curve_of(device, kernels)) return on_curve(*curve, bytes);
  const double half_size = device.memory_bandwidth.value.value * kHalfPerformanceSeconds;
  return Seconds((static_cast<double>(bytes.count) + half_size) / streaming_bandwidth(device));
}

Seconds price(const Pointwise& kernel, const Accelerator& device) { return bound_by_bytes({kernel}, device); }
Seconds price(const Reduction& kernel, const Accelerator& device) { return bound_by_bytes({kernel}, device); }
Seconds price(const RowWise& kernel, const Accelerator& device) { return bound_by_bytes({kernel}, device); }
Seconds price(const Gather& kernel, const Accelerator& device) { return bound_by_bytes({kernel}, device); }
Seconds price(const MultiTensor& kernel, const Accelerator& device) { return bound_by_bytes({kernel}, device); }

/// By its class: arithmetic where it says some that weighs more than its bytes.
Seconds price(const Unspecified& kernel, const Accelerator& device) {
  const Seconds memory = bound_by_bytes({kernel}, device);
  const MathType math = math_of(kernel.type);
  const bool backward = kernel.kind == KernelKind::attention_backward;
  if (kernel.kind == KernelKind::attention || backward) return std::max(memory, attention_time(device, math, Flops(kernel.flops), backward));
  const bool multiplies = kernel.kind == KernelKind::gemm || kernel.kind == KernelKind::convolution;
  return multiplies ? std::max(memory, device.gemm.start.value + Flops(kernel.flops) / device.sustained(math)) : memory;
}

}  // namespace plimsoll

// Time of fused attention, by whose kernels it is.
#include <algorithm>

#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

/// Heads narrower than this leave matrix units idle in fused attention.
constexpr std::int64_t kWideHead = 128;
constexpr double kNarrowHead = 0.8;

}  // namespace

Seconds attention_time(const Accelerator& device, MathType type, Flops flops, bool backward, std::int64_t head_dim) {
  const double share = (backward ? device.attention.backward : device.attention.forward).value * (head_dim < kWideHead ? kNarrowHead : 1.0);
  return device.gemm.start.value + flops / (device.sustained(type) * share);
}

Seconds price(const Attention& attention, const Accelerator& device) {
  const Kernel kernel{attention};
  const Seconds memory = memory_bound_time(device, Bytes(kernel.bytes()), name_of(kernel.kind()));
  if (kernel.flops() <= 0) return memory;
  const bool backward = attention.part == Attention::Part::backward;
  return std::max(memory, attention_time(device, math_of(attention.type), Flops(kernel.flops()), backward));
}

}  // namespace plimsoll

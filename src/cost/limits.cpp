// What keeps a kernel from being faster, and what padding would spare it.
#include <algorithm>

#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

/// From here on a share of a kernel's time is what it is bound by.
constexpr double kMost = 0.5;

/// Elements of that type in the 16 bytes that the widest loads take.
std::int64_t whole_load(DType type) { return std::max<std::int64_t>(1, 16 / size_of(type)); }

Limit limit_of(const Product& product, const Accelerator& device, const Surroundings& around) {
  const Seconds time = price(product, device, around);
  if (const auto padding = padded(product); padding && price(*padding, device, around) < 0.8 * time) return Limit::alignment;
  const ProductPlan plan = plan_product(product, device, around);
  if (plan.start > kMost * time) return Limit::latency;
  return plan.traffic < plan.compute ? Limit::arithmetic : Limit::bandwidth;
}

}  // namespace

std::string_view name_of(Limit limit) {
  constexpr std::string_view kNames[] = {"arithmetic", "bandwidth", "issue", "latency", "alignment"};
  return kNames[static_cast<std::size_t>(limit)];
}

std::optional<Product> padded(const Product& product) {
  if (product.alignment >= 16) return std::nullopt;
  Product whole = product;
  whole.alignment = 16;
  for (std::int64_t* size : {&whole.m, &whole.n, &whole.k}) *size = round_up(*size, whole_load(product.a));
  return whole;
}

Limit limit_of(const Kernel& kernel, const Accelerator& device, const Surroundings& around) {
  if (const Product* product = kernel.product()) return limit_of(*product, device, around);
  const Seconds time = price(kernel, device, around);
  if (const Attention* attention = kernel.attention(); attention && kernel.flops() > 0) return Limit::arithmetic;
  const Seconds moving = Bytes(kernel.bytes()) / (device.memory_bandwidth.value * device.memory_efficiency.value);
  if (moving > 0.7 * time) return Limit::bandwidth;
  constexpr double kShort = 5e-6;  // of launches that hardly move anything
  return time < Seconds(kShort) ? Limit::latency : Limit::issue;
}

}  // namespace plimsoll

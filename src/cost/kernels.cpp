// Time of a kernel, by what it is: one law a file (products, convolutions, attention, memory_bound).
#include "plimsoll/cost.hpp"

#include "cost/power.hpp"

namespace plimsoll {

Seconds price(const Kernel& kernel, const Accelerator& device, const Surroundings& around) {
  return std::visit(
      [&](const auto& work) {
        if constexpr (requires { price(work, device, around); }) {
          return price(work, device, around);
        } else {
          return price(work, device);
        }
      },
      kernel.work);
}

double draw(const Kernel& kernel, const Accelerator& device, const Surroundings& around) {
  const auto drawn = [&](double power) { return power / slowdown(power, device, around); };
  if (const Product* product = kernel.product()) return drawn(cost::boost_power(*product, device));
  if (const auto* convolution = std::get_if<Convolution>(&kernel.work)) return drawn(cost::boost_power(as_product(*convolution), device));
  const Attention* attention = kernel.attention();
  const bool multiplies = attention && (attention->part == Attention::Part::forward || attention->part == Attention::Part::backward);
  return multiplies ? drawn(cost::boost_power(*attention, device)) : device.gemm.power_elsewhere.value;
}

}  // namespace plimsoll

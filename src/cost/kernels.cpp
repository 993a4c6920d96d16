// Time of a kernel, by what it is: one law a file (products, convolutions, attention, memory_bound).
#include "plimsoll/cost.hpp"

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

}  // namespace plimsoll

// Time of a kernel, by what it is: one law a file (products, attention, memory_bound).
#include "plimsoll/cost.hpp"

namespace plimsoll {

Seconds price(const Kernel& kernel, const Accelerator& device) {
  return std::visit([&](const auto& work) { return price(work, device); }, kernel.work);
}

}  // namespace plimsoll

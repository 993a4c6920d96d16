#include <charconv>
#include <string_view>

#include "plimsoll/hardware.hpp"

namespace plimsoll {

int Accelerator::capability() const {
  constexpr std::string_view kPrefix = "sm_";
  if (target.compare(0, kPrefix.size(), kPrefix) != 0) return 0;
  int capability = 0;
  const char* end = target.data() + target.size();
  const auto read = std::from_chars(target.data() + kPrefix.size(), end, capability);
  return read.ec == std::errc() && read.ptr == end ? capability : 0;
}

}  // namespace plimsoll

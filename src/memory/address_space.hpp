// Virtual addresses of segments. Best fit breaks ties between equal blocks by address, so their order matters.
#pragma once

#include <cstdint>
#include <map>

#include "plimsoll/memory.hpp"

namespace plimsoll::memory {

/// Hands out address ranges as a driver does: the lowest (or highest) gap that is large enough, else beyond the last range.
class AddressSpace {
 public:
  explicit AddressSpace(AddressOrder order) : order_(order) {}

  std::uint64_t reserve(std::int64_t size);
  void release(std::uint64_t address, std::int64_t size);

 private:
  using Gaps = std::map<std::uint64_t, std::uint64_t>;  // start → size, neighbours merged

  std::uint64_t take_gap(Gaps::iterator gap, std::uint64_t size);
  void retract(Gaps::iterator gap);

  AddressOrder order_;
  std::uint64_t low_ = std::uint64_t{1} << 62, high_ = std::uint64_t{1} << 62;  // the range in use so far
  Gaps gaps_;
};

}  // namespace plimsoll::memory

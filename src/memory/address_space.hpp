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
  std::uint64_t take_gap(std::map<std::uint64_t, std::uint64_t>::iterator gap, std::uint64_t size);

  AddressOrder order_;
  std::uint64_t low_ = std::uint64_t{1} << 62, high_ = std::uint64_t{1} << 62;  // the range in use so far
  std::map<std::uint64_t, std::uint64_t> gaps_;                                 // start → size, neighbours merged
};

}  // namespace plimsoll::memory

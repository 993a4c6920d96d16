// Where a device's driver puts what is allocated: which of equal free blocks PyTorch before 2.12 takes follows from it.
#pragma once

#include <cstdint>
#include <map>

#include "plimsoll/memory.hpp"

namespace plimsoll::memory {

/// The address space of a device. In order of age, each allocation lies above all before it, for good. By address, as CUDA's driver was
/// seen to place 28 training steps on an H100: as high as possible, at multiples of 32 MiB from that size on, smaller ones in the gaps that
/// this leaves, and what was given back is used again.
class DeviceAddresses {
 public:
  explicit DeviceAddresses(SegmentOrder order);
  std::uint64_t take(std::int64_t bytes);
  void give_back(std::uint64_t address, std::int64_t bytes);

 private:
  SegmentOrder order_;
  std::uint64_t next_;                           ///< in order of age
  std::map<std::uint64_t, std::uint64_t> gaps_;  ///< by address: start and bytes
};

}  // namespace plimsoll::memory

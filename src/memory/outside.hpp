// Device memory that the framework's allocator does not hold: the runtime's context with its loaded kernels, and the buffers that the
// collective library keeps for every process group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/hardware.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::memory {

/// Bytes with what is known of their uncertainty.
struct BytesBand {
  Bytes low, expected, high;
  friend BytesBand operator+(BytesBand a, BytesBand b) { return {a.low + b.low, a.expected + b.expected, a.high + b.high}; }
};

/// A process group that the rank communicates in; groups of one rank have no communicator.
struct ProcessGroup {
  std::int64_t ranks = 1;
  std::int64_t peers = 0;  ///< ranks that this rank exchanges point-to-point messages with: pipeline neighbours, all-to-all
};

struct OutsideAllocator {
  BytesBand context;
  std::vector<BytesBand> communicators;  ///< in the order of the groups
  BytesBand total() const;
};

/// The expected bytes are the device's own (its file's `overheads`: the first communicator costs more than the others). The bounds are
/// those of hardware/overheads.json: channels × connections × buffers of the vendor's library, between a bare and a fully loaded context. A
/// context that was measured has no band. Throws Error(refused) for a vendor that the file does not have.
OutsideAllocator outside_allocator(const Accelerator& device, const std::vector<ProcessGroup>& groups);

/// What a framework's communicators were found to take beyond that (hardware/overheads.json); 0 for those that the file does not have.
Bytes communicators_of_framework(const std::string& framework);

/// Receive buffers of one connection: one peer, one channel, all protocols (NCCL 9,633,792 B, RCCL 4,915,200 B).
Bytes connection_buffers(const std::string& vendor);

}  // namespace plimsoll::memory

/// Communicators in which this one process may be any rank of any world: every call succeeds at once and moves nothing.
#pragma once

#include <cstdint>

#include "machine.hpp"

namespace plimsoll::device {

struct Communicator {
  std::uint64_t magic = kMagic;
  std::uint32_t id = 0, parent = 0;
  int size = -1, rank = -1;  ///< -1: a split whose size was not told
  int device = 0;
  int color = 0, key = 0;
  std::uint64_t unique_id = 0;
  std::uint32_t name = 0;
  std::uint64_t taken_bytes = 0;  ///< of the device, for its buffers

  static constexpr std::uint64_t kMagic = 0x504c494d434f4d31;
};

struct Membership {
  int size, rank;
  std::uint64_t unique_id = 0;
  const char* name = nullptr;
};

// Every function here takes the machine's lock itself.

/// Null when the device has no memory left for its buffers.
PLIMSOLL_DEVICE_CORE Communicator* make_communicator(const Membership& membership);
/// The part of `parent` with that colour; size and rank as plimsoll_rehearse_expect_split said. Otherwise the size is unknown, and the rank
/// is taken to be the key, as frameworks give it.
PLIMSOLL_DEVICE_CORE Communicator* split(const Communicator& parent, int color, int key, const char* name);
PLIMSOLL_DEVICE_CORE Communicator* shrink(const Communicator& parent, int excluded, const char* name);
PLIMSOLL_DEVICE_CORE void end_communicator(Communicator* communicator, record::CommunicatorAction action);
PLIMSOLL_DEVICE_CORE void expect_split(int color, int size, int rank);

PLIMSOLL_DEVICE_CORE void group_start();
PLIMSOLL_DEVICE_CORE bool group_end();

struct CollectiveWork {
  record::Collective op;
  record::Type type = record::Type::unknown;
  std::uint64_t count = 0, bytes = 0;
  int peer = -1;
  int reduction = 0;
};
PLIMSOLL_DEVICE_CORE void collective(const CollectiveWork& work, const Communicator& communicator, Stream& stream);

}  // namespace plimsoll::device

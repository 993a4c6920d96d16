#include "memory/outside.hpp"

#include <gtest/gtest.h>

#include "plimsoll/error.hpp"

namespace plimsoll::memory {
namespace {

Accelerator device(const std::string& vendor) {
  Accelerator accelerator;
  accelerator.vendor = vendor;
  accelerator.overheads.context = {500_MiB, Provenance::assumed, ""};
  accelerator.overheads.first_communicator = {512_MiB, Provenance::assumed, ""};
  accelerator.overheads.further_communicator = {300_MiB, Provenance::assumed, ""};
  return accelerator;
}

// NCCL: LL 524,288 + LL128 4,915,200 + Simple 4,194,304. RCCL: 262,144 + 458,752 + 4,194,304.
TEST(Outside, BuffersOfAConnection) {
  EXPECT_EQ(connection_buffers("NVIDIA"), Bytes(9633792));
  EXPECT_EQ(connection_buffers("AMD"), Bytes(4915200));
  EXPECT_THROW(connection_buffers("Acme"), Error);
}

// Two groups of more than one rank: 500 + 512 + 300 MiB expected; at least 16 channels of one connection, at most 32 of four, each.
TEST(Outside, BandOfANode) {
  const OutsideAllocator outside = outside_allocator(device("NVIDIA"), {{8, 0}, {1, 0}, {2, 0}});
  ASSERT_EQ(outside.communicators.size(), 3u);
  EXPECT_EQ(outside.communicators[1].high, Bytes(0));
  EXPECT_EQ(outside.total().expected, 1312_MiB);
  EXPECT_EQ(outside.total().low, 320_MiB + Bytes(2 * 16 * 9633792));
  EXPECT_EQ(outside.total().high, Bytes(1000000000LL + 2LL * 128 * 9633792));
}

// Point-to-point peers add buffers of their own.
TEST(Outside, PeersAddBuffers) {
  const BytesBand ring = outside_allocator(device("AMD"), {{4, 0}}).total(), pipeline = outside_allocator(device("AMD"), {{4, 2}}).total();
  EXPECT_EQ(pipeline.high - ring.high, Bytes(2 * 4 * 4915200));
  EXPECT_EQ(pipeline.expected, ring.expected);
}

TEST(Outside, CommunicatorsOfAFramework) {
  EXPECT_EQ(communicators_of_framework("nanotron"), Bytes(9448928051));  // 8.8 GiB
  EXPECT_EQ(communicators_of_framework("torchtitan"), Bytes(0));
}

// What was measured has no band; a device that is said to keep nothing for communicators keeps nothing.
TEST(Outside, MeasuredValuesStand) {
  Accelerator measured = device("NVIDIA");
  measured.overheads.context = {524288000_B, Provenance::measured, ""};
  measured.overheads.first_communicator.value = measured.overheads.further_communicator.value = Bytes(0);
  const BytesBand total = outside_allocator(measured, {{8, 0}}).total();
  EXPECT_EQ(total.low, 524288000_B);
  EXPECT_EQ(total.high, 524288000_B);
}

}  // namespace
}  // namespace plimsoll::memory

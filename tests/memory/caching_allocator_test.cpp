#include "memory/caching_allocator.hpp"

#include <gtest/gtest.h>

namespace plimsoll::memory {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// Requests round up to 512 B; up to 1 MiB comes from 2 MiB segments, below 10 MiB from 20 MiB segments, above in segments rounded
// to 2 MiB. A block of the large pool keeps a rest of up to 1 MiB, a small one none of 512 B or more.
TEST(CachingAllocator, RoundsRequestsAndSegments) {
  struct Row {
    std::int64_t request, block, segment;
  };
  const Row rows[] = {{1, 512, 2 * kMiB},
                      {513, 1024, 2 * kMiB},
                      {1048576, 1048576, 2 * kMiB},
                      {1048577, 1049088, 20 * kMiB},
                      {5000000, 5000192, 20 * kMiB},
                      {10485760, 10485760, 10485760},
                      {65667072, 65667072, 67108864},
                      {436224000, 436224000, 438304768},
                      {25165825, 25166336, 27262976}};
  for (const Row& row : rows) {
    EXPECT_EQ(rounded_size(row.request, 0), row.block);
    EXPECT_EQ(segment_size(row.block), row.segment);
    CachingAllocator allocator({});
    allocator.allocate(row.request, 0);
    EXPECT_EQ(allocator.reserved(), row.segment) << row.request;
  }
}

// One 20 MiB segment: 3, 3, 14 free. The first 3 is freed; 3.5 comes out of the 14; 2 finds the free 3 the best fit, and its rest is
// exactly 1 MiB, which is not more than 1 MiB: the 3 MiB block is handed out whole. 3 + 3.5 + 3 = 9.5 MiB.
TEST(CachingAllocator, KeepsARestOfOneMebibyte) {
  CachingAllocator allocator({});
  const BlockId first = allocator.allocate(3 * kMiB, 0);
  allocator.allocate(3 * kMiB, 0);
  allocator.free(first);
  allocator.allocate(7 * kMiB / 2, 0);
  const BlockId last = allocator.allocate(2 * kMiB, 0);
  EXPECT_EQ(allocator.size(last), 3 * kMiB);
  EXPECT_EQ(allocator.allocated(), 19 * kMiB / 2);
  EXPECT_EQ(allocator.reserved(), 20 * kMiB);
}

// Two free segments of 30 MiB: PyTorch 2.12 takes the older; before, the lower address, which on a driver that gives addresses downwards
// is the younger's.
TEST(CachingAllocator, EqualBlocksAreTakenByTheOrderOfSegments) {
  for (const SegmentOrder order : {SegmentOrder::oldest_first, SegmentOrder::youngest_first}) {
    CachingAllocator allocator({.segments = order});
    const BlockId older = allocator.allocate(30 * kMiB, 0), younger = allocator.allocate(30 * kMiB, 0);
    const std::uint64_t of_older = allocator.address(older), of_younger = allocator.address(younger);
    allocator.free(older);
    allocator.free(younger);
    const bool takes_older = order == SegmentOrder::oldest_first;
    EXPECT_EQ(allocator.address(allocator.allocate(30 * kMiB, 0)), takes_older ? of_older : of_younger);
  }
}

}  // namespace
}  // namespace plimsoll::memory

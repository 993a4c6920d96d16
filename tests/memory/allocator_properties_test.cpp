// Seeded random traces: the allocator against a slow reference that scans lists, and its invariants under every setting.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "memory/caching_allocator.hpp"

namespace plimsoll::memory {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

/// The allocator's rules in the plainest form: a list of segments, each a list of blocks; every search looks at every block.
class Reference {
 public:
  explicit Reference(std::int64_t capacity) : capacity_(capacity) {}

  /// The address of the block, or 0 when the device is full.
  std::uint64_t allocate(std::int64_t bytes, StreamId stream) {
    const std::int64_t size = rounded_size(bytes, 0);
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (attempt == 1) release();
      Block* block = best_fit(size, stream);
      if (!block && reserved() + segment_size(size) <= capacity_) {
        add_segment(size, stream);
        block = best_fit(size, stream);
      }
      if (block) return cut(*block, size);
    }
    return 0;
  }
  void free(std::uint64_t address) {
    for (auto& [start, segment] : segments_)
      for (Block& block : segment.blocks)
        if (block.address == address) block.used = false;
    for (auto& [start, segment] : segments_) join(segment.blocks);
  }
  void release() {
    for (auto it = segments_.begin(); it != segments_.end();)
      it = it->second.blocks.size() == 1 && !it->second.blocks[0].used ? segments_.erase(it) : std::next(it);
  }
  std::int64_t reserved() const {
    std::int64_t sum = 0;
    for (const auto& [start, segment] : segments_) sum += segment.size;
    return sum;
  }
  std::int64_t allocated() const {
    std::int64_t sum = 0;
    for (const auto& [start, segment] : segments_)
      for (const Block& block : segment.blocks) sum += block.used ? block.size : 0;
    return sum;
  }

 private:
  struct Block {
    std::uint64_t address;
    std::int64_t size;
    bool used;
  };
  struct Segment {
    std::int64_t size;
    StreamId stream;
    bool small;
    std::vector<Block> blocks;
  };

  Block* best_fit(std::int64_t size, StreamId stream) {
    Block* best = nullptr;
    for (auto& [start, segment] : segments_)
      for (Block& block : segment.blocks)
        if (segment.stream == stream && segment.small == (size <= kSmallSize) && !block.used && block.size >= size &&
            (!best || block.size < best->size))
          best = &block;
    return best;
  }
  void add_segment(std::int64_t size, StreamId stream) {
    const std::int64_t bytes = segment_size(size);
    const std::uint64_t address = next_address_;  // ascending: the oldest segment has the lowest
    next_address_ += static_cast<std::uint64_t>(bytes);
    segments_[address] = {bytes, stream, size <= kSmallSize, {{address, bytes, false}}};
  }
  std::uint64_t cut(Block& block, std::int64_t size) {
    const std::uint64_t address = block.address;
    block.used = true;
    Segment& segment = std::prev(segments_.upper_bound(address))->second;
    const std::int64_t rest = block.size - size;
    if (segment.small ? rest < 512 : rest <= kMiB) return address;
    block.size = size;
    const auto at = std::find_if(segment.blocks.begin(), segment.blocks.end(), [&](const Block& b) { return b.address == address; });
    segment.blocks.insert(at + 1, {address + static_cast<std::uint64_t>(size), rest, false});
    return address;
  }
  static void join(std::vector<Block>& blocks) {
    for (std::size_t i = 0; i + 1 < blocks.size();) {
      if (blocks[i].used || blocks[i + 1].used) {
        ++i;
        continue;
      }
      blocks[i].size += blocks[i + 1].size;
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }

  std::int64_t capacity_;
  std::uint64_t next_address_ = std::uint64_t{1} << 32;
  std::map<std::uint64_t, Segment> segments_;
};

/// Sizes as training makes them: many repeats, all three size classes.
std::int64_t random_size(std::mt19937& random) {
  static const std::int64_t common[] = {512, 4096, 100000, kMiB, kMiB + 1, 3 * kMiB, 10 * kMiB, 16 * kMiB, 33 * kMiB, 100 * kMiB};
  if (random() % 2) return common[random() % 10];
  const std::int64_t limit = std::int64_t{1} << (8 + random() % 20);
  return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
}

/// Segments apart from one another, their blocks without gaps, no two free neighbours, and the totals their sums.
void expect_sound(const CachingAllocator& allocator, bool nothing_pending) {
  std::int64_t reserved = 0, allocated = 0;
  std::uint64_t end = 0;
  for (const auto& segment : allocator.segments()) {
    ASSERT_GE(segment.address, end);
    end = segment.address;
    bool was_free = false;
    for (BlockId block : segment.blocks) {
      ASSERT_EQ(allocator.address(block), end);
      end += static_cast<std::uint64_t>(allocator.size(block));
      if (allocator.in_use(block)) allocated += allocator.size(block);
      ASSERT_FALSE(nothing_pending && was_free && !allocator.in_use(block));
      was_free = !allocator.in_use(block);
    }
    ASSERT_EQ(end, segment.address + static_cast<std::uint64_t>(segment.size));
    reserved += segment.size;
  }
  ASSERT_EQ(allocator.reserved(), reserved);
  ASSERT_EQ(allocator.allocated(), allocated);
}

class AllocatorProperties : public testing::TestWithParam<unsigned> {};

TEST_P(AllocatorProperties, DecidesAsTheReferenceDoes) {
  std::mt19937 random(GetParam());
  const std::int64_t capacity = (200 + random() % 2000) * kMiB;
  CachingAllocator allocator({{}, capacity, capacity, DelayedFree::next_allocation});
  Reference reference(capacity);
  std::vector<BlockId> live;
  for (int i = 0; i < 600; ++i) {
    if (random() % 200 == 0) {
      allocator.empty_cache();
      reference.release();
    } else if (!live.empty() && random() % 100 < live.size()) {
      std::swap(live[random() % live.size()], live.back());
      reference.free(allocator.address(live.back()));
      allocator.free(live.back());
      live.pop_back();
    } else {
      const std::int64_t bytes = random_size(random);
      const auto stream = static_cast<StreamId>(random() % 3);
      const BlockId block = allocator.allocate(bytes, stream);
      ASSERT_EQ(reference.allocate(bytes, stream), block == kNoBlock ? 0 : allocator.address(block)) << i;
      if (block != kNoBlock) live.push_back(block);
    }
    ASSERT_EQ(allocator.allocated(), reference.allocated()) << i;
    ASSERT_EQ(allocator.reserved(), reference.reserved()) << i;
  }
  expect_sound(allocator, true);
}

AllocatorSettings random_settings(std::mt19937& random) {
  AllocatorSettings settings;
  settings.expandable_segments = random() % 2 == 0;
  if (random() % 2) settings.max_split_size = Bytes(static_cast<std::int64_t>(21 + random() % 100) << 20);
  settings.roundup_power2_divisions = random() % 3 ? 0 : 4;
  if (random() % 3 == 0) {
    settings.garbage_collection_threshold = 0.5;
    settings.per_process_memory_fraction = 0.9;
  }
  return settings;
}

TEST_P(AllocatorProperties, StaysSoundUnderEverySetting) {
  std::mt19937 random(GetParam() + 1000);
  const auto delayed = random() % 2 ? DelayedFree::next_wait : DelayedFree::next_allocation;
  const std::int64_t capacity = (200 + random() % 2000) * kMiB;
  CachingAllocator allocator({random_settings(random), capacity, capacity, delayed});
  std::vector<BlockId> live;
  for (int i = 0; i < 400; ++i) {
    if (!live.empty() && random() % 80 < live.size()) {
      std::swap(live[random() % live.size()], live.back());
      if (random() % 3 == 0) allocator.record_stream(live.back(), static_cast<StreamId>(random() % 4));
      allocator.free(live.back());
      live.pop_back();
    } else if (random() % 30 == 0) {
      allocator.complete(static_cast<StreamId>(random() % 4));
    } else {
      const BlockId block = allocator.allocate(random_size(random), static_cast<StreamId>(random() % 3));
      if (block != kNoBlock) live.push_back(block);
    }
    ASSERT_LE(allocator.reserved(), capacity);
    ASSERT_NO_FATAL_FAILURE(expect_sound(allocator, false));
  }
  for (BlockId block : live) allocator.free(block);
  allocator.empty_cache();
  EXPECT_EQ(allocator.allocated(), 0);
  EXPECT_EQ(allocator.reserved(), 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AllocatorProperties, testing::Range(0u, 40u));

}  // namespace
}  // namespace plimsoll::memory

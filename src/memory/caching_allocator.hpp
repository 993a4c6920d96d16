// A model of PyTorch's caching allocator for CUDA and HIP (c10/cuda/CUDACachingAllocator.cpp, 2.6 to 2.15): the same decisions, block by
// block, on addresses instead of memory. Among equal free blocks PyTorch takes the one of the oldest segment, then of the lowest address;
// before 2.12 that of the lowest address alone. Addresses come so that the lowest is always the one that is taken (device_addresses.hpp).
// Graph-private pools and memory shared between
// processes are not modelled.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/device_addresses.hpp"
#include "memory/free_list.hpp"
#include "plimsoll/memory.hpp"

namespace plimsoll::memory {

inline constexpr BlockId kNoBlock = UINT32_MAX;

// The allocator's constants (c10/core/AllocatorConfig.h).
inline constexpr std::int64_t kMinBlock = 512;
inline constexpr std::int64_t kSmallSize = 1 << 20;  // largest request of the small pool
inline constexpr std::int64_t kSmallSegment = 2 << 20;
inline constexpr std::int64_t kLargeSegment = 20 << 20;
inline constexpr std::int64_t kMinLargeRequest = 10 << 20;  // from here on a request gets a segment of its own
inline constexpr std::int64_t kLargeRounding = 2 << 20;

/// A request of at least a block under roundup_power2_divisions.
std::int64_t rounded_to_division(std::int64_t bytes, int roundup_power2_divisions);
/// Bytes of the block that a request gets, before the rest of a block that is not split.
inline std::int64_t rounded_size(std::int64_t bytes, int roundup_power2_divisions) {
  if (bytes < kMinBlock) return kMinBlock;
  return roundup_power2_divisions > 1 ? rounded_to_division(bytes, roundup_power2_divisions) : round_up(bytes, kMinBlock);
}
/// Bytes of the segment that is asked of the driver for a block of that size.
std::int64_t segment_size(std::int64_t rounded);

class CachingAllocator {
 public:
  struct Options {
    AllocatorSettings settings;
    std::int64_t capacity = INT64_MAX;  // of segments that the driver can give
    std::int64_t total = INT64_MAX;     // memory that the device reports
    DelayedFree delayed_free = DelayedFree::next_allocation;
    SegmentOrder segments = SegmentOrder::by_age;
  };
  /// A contiguous range got from the driver, as torch.cuda.memory_snapshot() reports it.
  struct Segment {
    std::uint64_t address;
    std::int64_t size;
    StreamId stream;
    bool small, expandable;
    std::vector<BlockId> blocks;  // in order of address
  };

  /// Memory got from the driver or given back.
  struct SegmentEvent {
    AllocatorEvent::Kind kind;
    std::uint64_t address;
    std::int64_t size;
    StreamId stream;
  };

  /// Throws Error(bad_input) for settings that PyTorch refuses.
  explicit CachingAllocator(const Options& options);

  /// A block of at least `bytes` (> 0) in the pool of `stream`, or kNoBlock when the device is full.
  BlockId allocate(std::int64_t bytes, StreamId stream);
  /// The same of a free block alone, or kNoBlock where the driver has to be asked for one: by take_new().
  BlockId take_free(std::int64_t bytes, StreamId stream);
  /// What no free block serves: a block that is got from the driver, or kNoBlock when the device is full.
  BlockId take_new(std::int64_t bytes, StreamId stream);
  /// What the block would measure that allocate() would find free; 0 where it would find none. For memory that is given back at once:
  /// taking and freeing such a block leaves everything as it is.
  std::int64_t passing_size(std::int64_t bytes, StreamId stream);
  /// The first time that the driver refuses what allocate() asks of it, allocate() is to return without changing anything. Called again it
  /// gives memory back before it asks once more, as always.
  void stop_once_at_capacity();
  /// Whether the allocation that failed last stopped there.
  bool stopped_at_capacity() const { return stopped_at_capacity_; }
  /// From now on the device is as large as need be.
  void lift_capacity();
  void free(BlockId block);
  /// The block is also used on `stream`: once freed it comes back only when that stream is known to be done.
  void record_stream(BlockId block, StreamId stream);
  /// `stream` has been waited for: blocks freed while it used them come back (DelayedFree::next_wait).
  void complete(StreamId stream);
  /// A block that was freed and waits for streams that used it is done with all of them.
  void complete_block(BlockId id);
  /// Whether a block is in use on another stream than its own.
  bool used_elsewhere(BlockId id) const { return blocks_[id].uses != 0; }
  /// The host has waited for the device: all delayed blocks come back.
  void complete_all();
  /// torch.cuda.empty_cache(): waits for the device and gives unused segments back to the driver.
  void empty_cache();

  /// From now on every segment event is appended to `log`, which must outlive the allocator; nullptr ends it.
  void log_segments(std::vector<SegmentEvent>* log) { log_ = log; }

  std::int64_t allocated() const { return allocated_; }  // torch.cuda.memory_allocated
  std::int64_t reserved() const { return reserved_; }    // torch.cuda.memory_reserved
  int retries() const { return retries_; }               // num_alloc_retries
  std::int64_t size(BlockId block) const { return blocks_[block].size; }
  std::uint64_t address(BlockId block) const { return blocks_[block].address; }
  bool in_use(BlockId block) const { return blocks_[block].allocated; }

  /// The addresses that an expandable segment may grow into, and what it grows by.
  struct ExpandableSegment {
    std::uint64_t address = 0;
    std::int64_t size = 0, page = 0;
  };
  /// The one that holds an address; its size is 0 where there is none.
  ExpandableSegment expandable_segment(std::uint64_t address) const;

  /// All segments in order of address.
  std::vector<Segment> segments() const;
  /// Everything that later decisions depend on, apart from the ages that garbage collection keeps. `holders` (by block) says what is in
  /// the blocks in use.
  std::vector<std::uint64_t> state(const std::vector<TensorId>& holders) const;

 private:
  /// Aligned to a cache line, so that no block lies across two: a third of a call is spent in reading blocks.
  struct alignas(64) Block {
    std::uint64_t address = 0;
    std::int64_t size = 0;      // 0 while the id is unused
    std::uint64_t uses = 0;     // other streams that use it, one bit each; of a freed block: those not known to be done
    std::int64_t age_base = 0;  // searches of its pool when it became free (garbage collection)
    BlockId previous = kNoBlock, next = kNoBlock;
    std::uint32_t pool = 0;
    std::int32_t expandable = -1;  // index of its expandable segment
    bool allocated = false, mapped = true;
    bool available() const { return !allocated && uses == 0; }
    bool is_split() const { return previous != kNoBlock || next != kNoBlock; }
  };
  struct Pool {
    StreamId stream;
    bool small;
    FreeList free;
    std::vector<BlockId> unmapped;  // address ranges of expandable segments without memory, by address
  };

  void note(AllocatorEvent::Kind kind, std::uint64_t address, std::int64_t size, std::uint32_t pool);
  BlockId new_block(std::uint64_t address, std::int64_t size, std::uint32_t pool, std::int32_t expandable);
  void delete_block(BlockId id);
  std::uint32_t pool_of(StreamId stream, bool small);
  std::uint32_t new_pool(StreamId stream, bool small);
  FreeList::Entry entry_of(BlockId id) const { return {blocks_[id].size, blocks_[id].address, id}; }
  void insert_free(BlockId id);
  void erase_free(BlockId id);
  void splice_before(BlockId id, BlockId next);
  void splice_after(BlockId id, BlockId previous);
  bool may_join(BlockId id, BlockId neighbour) const;
  void join(BlockId into, BlockId from);
  void merge(BlockId into, BlockId from);
  BlockId split(BlockId id, std::int64_t size);

  bool stop_at_capacity();
  BlockId refuse_request();
  void delay(BlockId id);
  BlockId give_out(BlockId id);
  BlockId take_free_block(std::uint32_t pool, std::int64_t size);
  FreeList::Cursor best_fit(const Pool& pool, std::int64_t size) const;
  FreeList::Cursor best_expandable(const Pool& pool, FreeList::Cursor cursor) const;
  BlockId take_from_driver(std::uint32_t pool, std::int64_t size);
  BlockId take_new_block(std::uint32_t pool, std::int64_t size);
  BlockId take_expandable_block(std::uint32_t pool, std::int64_t size);
  BlockId find_expandable_room(std::uint32_t pool, std::int64_t size);
  bool has_room(BlockId first, std::int64_t size) const;
  bool map(BlockId id, std::int64_t size);
  void unmap(BlockId id);
  bool should_split(const Block& block, std::int64_t size) const { return should_split(pools_[block.pool].small, block.size, size); }
  bool should_split(bool small, std::int64_t whole, std::int64_t size) const;

  void return_to_pool(BlockId id);
  void collect_garbage();
  bool release_oversize(std::uint32_t pool, std::int64_t size);
  void release_all();
  void release_pool(std::uint32_t pool);
  void release_segment(BlockId id);
  std::vector<BlockId> segment_heads() const;
  void erase_unmapped(BlockId id);
  void insert_unmapped(BlockId id);

  AllocatorSettings settings_;
  std::int64_t capacity_, total_, max_split_, fraction_limit_ = -1;
  bool stops_at_capacity_ = false, stopped_at_capacity_ = false;
  DelayedFree delayed_free_;
  bool collects_garbage_ = false;
  bool any_block_fits_;  // of its size or larger: none is kept for oversize requests, none can still grow
  DeviceAddresses addresses_;
  std::vector<Block> blocks_;
  std::vector<BlockId> unused_blocks_;
  std::vector<Pool> pools_;
  std::vector<std::uint32_t> pool_index_;  // stream × small → index in pools_ + 1
  std::vector<ExpandableSegment> expandables_;
  std::array<std::vector<BlockId>, 64> pending_;  // per stream: blocks freed while it used them, in order
  bool any_pending_ = false;
  std::int64_t searches_[2] = {0, 0};  // of the large and the small pools: the clock of garbage collection
  std::int64_t allocated_ = 0, reserved_ = 0;
  int retries_ = 0;
  std::vector<SegmentEvent>* log_ = nullptr;
};

}  // namespace plimsoll::memory

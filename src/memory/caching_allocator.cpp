#include "memory/caching_allocator.hpp"

#include <algorithm>
#include <limits>

#include "plimsoll/error.hpp"

namespace plimsoll::memory {
namespace {

// An unbounded device: more than any plan needs, and small enough for the arithmetic of addresses.
constexpr std::int64_t kUnbounded = std::int64_t{1} << 52;

void check(const AllocatorSettings& settings) {
  if (settings.max_split_size && settings.max_split_size->count <= kLargeSegment)
    fail("max_split_size_mb must be more than 20", "allocator");
  const int divisions = settings.roundup_power2_divisions;
  if (divisions < 0 || (divisions & (divisions - 1)) != 0) fail("roundup_power2_divisions must be a power of two", "allocator");
  const double threshold = settings.garbage_collection_threshold;
  if (!(threshold >= 0 && threshold < 1)) fail("garbage_collection_threshold must be in [0, 1)", "allocator");
  const double fraction = settings.per_process_memory_fraction.value_or(1);
  if (!(fraction >= 0 && fraction <= 1)) fail("per_process_memory_fraction must be in [0, 1]", "allocator");
}

// The next of `divisions` (a power of two) equal steps between two powers of two.
std::int64_t next_power2_division(std::int64_t size, int divisions) {
  const std::int64_t floor = std::int64_t{1} << (63 - __builtin_clzll(static_cast<std::uint64_t>(size)));
  if (floor == size) return size;
  return round_up(size, floor / divisions);
}

}  // namespace

std::int64_t rounded_to_division(std::int64_t bytes, int roundup_power2_divisions) {
  if (bytes > kMinBlock * roundup_power2_divisions) return next_power2_division(bytes, roundup_power2_divisions);
  return round_up(bytes, kMinBlock);
}

std::int64_t segment_size(std::int64_t rounded) {
  if (rounded <= kSmallSize) return kSmallSegment;
  if (rounded < kMinLargeRequest) return kLargeSegment;
  return round_up(rounded, kLargeRounding);
}

CachingAllocator::CachingAllocator(const Options& options)
    : settings_(options.settings),
      capacity_(std::min(options.capacity, kUnbounded)),
      total_(std::min(options.total, kUnbounded)),
      max_split_(options.settings.max_split_size ? options.settings.max_split_size->count : std::numeric_limits<std::int64_t>::max()),
      delayed_free_(options.delayed_free),
      any_block_fits_(!settings_.expandable_segments && !settings_.max_split_size),
      addresses_(options.segments) {
  check(settings_);
  if (settings_.per_process_memory_fraction)
    fraction_limit_ = static_cast<std::int64_t>(*settings_.per_process_memory_fraction * static_cast<double>(total_));
  collects_garbage_ = fraction_limit_ >= 0 && settings_.garbage_collection_threshold > 0;
  blocks_.reserve(1024);
  constexpr std::size_t kUsualPools = 8;  // a small and a large one for each of a few streams; each holds the bins of a free list
  pools_.reserve(kUsualPools);
}

/// Segments that expand are mapped page by page up to the refusal, and a limit below capacity refuses first: these do not stop.
void CachingAllocator::stop_once_at_capacity() { stops_at_capacity_ = !settings_.expandable_segments && fraction_limit_ < 0; }

void CachingAllocator::lift_capacity() { capacity_ = kUnbounded; }

bool CachingAllocator::stop_at_capacity() {
  stopped_at_capacity_ = stops_at_capacity_;
  stops_at_capacity_ = false;
  return stopped_at_capacity_;
}

// ---- blocks and pools ----------------------------------------------------------------------------------------------

void CachingAllocator::note(AllocatorEvent::Kind kind, std::uint64_t address, std::int64_t size, std::uint32_t pool) {
  if (log_) log_->push_back({kind, address, size, pools_[pool].stream});
}

inline BlockId CachingAllocator::new_block(std::uint64_t address, std::int64_t size, std::uint32_t pool, std::int32_t expandable) {
  if (unused_blocks_.empty()) {
    unused_blocks_.push_back(static_cast<BlockId>(blocks_.size()));
    blocks_.emplace_back();
  }
  const BlockId id = unused_blocks_.back();
  unused_blocks_.pop_back();
  Block& block = blocks_[id];
  block = {.address = address, .size = size, .pool = pool, .expandable = expandable};
  return id;
}

inline void CachingAllocator::delete_block(BlockId id) {
  blocks_[id].size = 0;
  unused_blocks_.push_back(id);
}

inline std::uint32_t CachingAllocator::pool_of(StreamId stream, bool small) {
  const std::size_t at = stream * std::size_t{2} + (small ? 1 : 0);
  const std::uint32_t index = at < pool_index_.size() ? pool_index_[at] : 0;
  return index != 0 ? index - 1 : new_pool(stream, small);
}

std::uint32_t CachingAllocator::new_pool(StreamId stream, bool small) {
  Pool& pool = pools_.emplace_back();
  pool.stream = stream;
  pool.small = small;
  const std::size_t at = stream * std::size_t{2} + (small ? 1 : 0);
  if (at >= pool_index_.size()) pool_index_.resize(at + 1, 0);
  pool_index_[at] = static_cast<std::uint32_t>(pools_.size());
  return static_cast<std::uint32_t>(pools_.size() - 1);
}

inline void CachingAllocator::insert_free(BlockId id) {
  Block& block = blocks_[id];
  Pool& pool = pools_[block.pool];
  block.age_base = searches_[pool.small];
  pool.free.insert(entry_of(id));
}

void CachingAllocator::erase_free(BlockId id) { pools_[blocks_[id].pool].free.erase(blocks_[id].size, blocks_[id].address); }

void CachingAllocator::insert_unmapped(BlockId id) {
  auto& list = pools_[blocks_[id].pool].unmapped;
  list.insert(std::find_if(list.begin(), list.end(), [&](BlockId other) { return blocks_[other].address > blocks_[id].address; }), id);
}

void CachingAllocator::erase_unmapped(BlockId id) {
  auto& list = pools_[blocks_[id].pool].unmapped;
  list.erase(std::find(list.begin(), list.end(), id));
}

void CachingAllocator::splice_before(BlockId id, BlockId next) {
  Block& block = blocks_[id];
  block.previous = blocks_[next].previous;
  block.next = next;
  if (block.previous != kNoBlock) blocks_[block.previous].next = id;
  blocks_[next].previous = id;
}

inline void CachingAllocator::splice_after(BlockId id, BlockId previous) {
  Block& block = blocks_[id];
  block.next = blocks_[previous].next;
  block.previous = previous;
  if (block.next != kNoBlock) blocks_[block.next].previous = id;
  blocks_[previous].next = id;
}

/// Whether a neighbour, if there is one, is free and mapped like the block.
inline bool CachingAllocator::may_join(BlockId id, BlockId neighbour) const {
  return neighbour != kNoBlock && blocks_[neighbour].available() && blocks_[id].mapped == blocks_[neighbour].mapped;
}

/// Joins the neighbour `from` to `into`; neither is in a list.
inline void CachingAllocator::join(BlockId into, BlockId from) {
  Block& target = blocks_[into];
  const Block& source = blocks_[from];
  if (target.previous == from) {
    target.address = source.address;
    target.previous = source.previous;
    if (target.previous != kNoBlock) blocks_[target.previous].next = into;
  } else {
    target.next = source.next;
    if (target.next != kNoBlock) blocks_[target.next].previous = into;
  }
  target.size += source.size;
  delete_block(from);
}

/// Joins the neighbour `from`, where it may be, to `into`, which is in no list.
void CachingAllocator::merge(BlockId into, BlockId from) {
  if (!may_join(into, from)) return;
  if (blocks_[from].mapped)
    erase_free(from);
  else
    erase_unmapped(from);
  join(into, from);
}

/// Cuts a block to `size`; the rest of it, which is in no list.
inline BlockId CachingAllocator::split(BlockId id, std::int64_t size) {
  const Block& whole = blocks_[id];
  const BlockId rest = new_block(whole.address + static_cast<std::uint64_t>(size), whole.size - size, whole.pool, whole.expandable);
  blocks_[id].size = size;
  splice_after(rest, id);
  return rest;
}

// ---- allocation ----------------------------------------------------------------------------------------------------

inline bool CachingAllocator::should_split(bool small, std::int64_t whole, std::int64_t size) const {
  const std::int64_t rest = whole - size;
  if (rest < kMinBlock) return false;
  if (small || settings_.expandable_segments) return true;
  return size < max_split_ && rest > kSmallSize;
}

/// The free block that serves a request; the end where none does.
inline FreeList::Cursor CachingAllocator::best_fit(const Pool& pool, std::int64_t size) const {
  FreeList::Cursor cursor = pool.free.lower_bound(size);
  if (pool.free.at_end(cursor) || any_block_fits_) return cursor;
  if (settings_.expandable_segments) cursor = best_expandable(pool, cursor);
  const std::int64_t found = pool.free.at(cursor).size;
  // Oversize blocks serve oversize requests only, and only those that nearly fill them.
  const bool kept_whole = size < max_split_ && found >= max_split_;
  const bool too_large = size >= max_split_ && found >= size + settings_.max_non_split_rounding.count;
  return kept_whole || too_large ? pool.free.end() : cursor;
}

inline BlockId CachingAllocator::take_free_block(std::uint32_t pool_id, std::int64_t size) {
  Pool& pool = pools_[pool_id];
  if (collects_garbage_) ++searches_[pool.small];
  const FreeList::Cursor place = best_fit(pool, size);
  if (pool.free.at_end(place)) return kNoBlock;
  const FreeList::Entry found = pool.free.at(place);
  if (!should_split(pool.small, found.size, size)) {
    pool.free.erase(place);
    return found.block;
  }
  const BlockId rest = split(found.block, size);
  if (collects_garbage_) blocks_[rest].age_base = searches_[pool.small];
  pool.free.shrink(place, {found.size - size, found.address + static_cast<std::uint64_t>(size), rest});
  return found.block;
}

/// What no device of this size can hold.
BlockId CachingAllocator::refuse_request() {
  if (stop_at_capacity()) return kNoBlock;
  release_all();
  ++retries_;
  return kNoBlock;
}

inline BlockId CachingAllocator::give_out(BlockId id) {
  blocks_[id].allocated = true;
  allocated_ += blocks_[id].size;
  return id;
}

BlockId CachingAllocator::take_free(std::int64_t bytes, StreamId stream) {
  if (any_pending_ && delayed_free_ == DelayedFree::next_allocation) complete_all();
  if (bytes > capacity_) return kNoBlock;
  const std::int64_t size = rounded_size(bytes, settings_.roundup_power2_divisions);
  const BlockId found = take_free_block(pool_of(stream, size <= kSmallSize), size);
  return found == kNoBlock ? kNoBlock : give_out(found);
}

BlockId CachingAllocator::take_new(std::int64_t bytes, StreamId stream) {
  if (bytes > capacity_) return refuse_request();
  const std::int64_t size = rounded_size(bytes, settings_.roundup_power2_divisions);
  const BlockId found = take_from_driver(pool_of(stream, size <= kSmallSize), size);
  return found == kNoBlock ? kNoBlock : give_out(found);
}

BlockId CachingAllocator::allocate(std::int64_t bytes, StreamId stream) {
  const BlockId found = take_free(bytes, stream);
  return found != kNoBlock ? found : take_new(bytes, stream);
}

/// What no free block serves: a new segment, if need be in the place of those that are given back. The rest goes to the pool where it is
/// worth splitting off.
BlockId CachingAllocator::take_from_driver(std::uint32_t pool, std::int64_t size) {
  if (collects_garbage_) collect_garbage();
  BlockId found = take_new_block(pool, size);
  if (found == kNoBlock && stop_at_capacity()) return kNoBlock;
  if (found == kNoBlock && release_oversize(pool, size)) found = take_new_block(pool, size);
  if (found == kNoBlock) {
    release_all();
    ++retries_;
    found = take_new_block(pool, size);
  }
  if (found != kNoBlock && should_split(blocks_[found], size)) insert_free(split(found, size));
  return found;
}

std::int64_t CachingAllocator::passing_size(std::int64_t bytes, StreamId stream) {
  if (any_pending_ && delayed_free_ == DelayedFree::next_allocation) complete_all();
  if (collects_garbage_) return 0;  // whose clock counts searches
  const std::int64_t size = rounded_size(bytes, settings_.roundup_power2_divisions);
  const Pool& pool = pools_[pool_of(stream, size <= kSmallSize)];
  const FreeList::Cursor place = best_fit(pool, size);
  if (pool.free.at_end(place)) return 0;
  const Block& block = blocks_[pool.free.at(place).block];
  return should_split(block, size) ? size : block.size;
}

/// From the first block that fits: a block that can still grow counts with the address range behind it, so a smaller one is preferred.
FreeList::Cursor CachingAllocator::best_expandable(const Pool& pool, FreeList::Cursor cursor) const {
  const auto room = [&](FreeList::Cursor at) {
    const Block& block = blocks_[pool.free.at(at).block];
    const bool grows = block.next != kNoBlock && !blocks_[block.next].mapped;
    return block.size + (grows ? blocks_[block.next].size : 0);
  };
  FreeList::Cursor best = cursor;
  for (cursor = pool.free.next(cursor); !pool.free.at_end(cursor); cursor = pool.free.next(cursor)) {
    if (room(cursor) >= room(best)) break;
    best = cursor;
  }
  return best;
}

BlockId CachingAllocator::take_new_block(std::uint32_t pool, std::int64_t size) {
  const std::int64_t bytes = segment_size(size);
  if (fraction_limit_ >= 0 && reserved_ + bytes > fraction_limit_) return kNoBlock;
  if (settings_.expandable_segments) return take_expandable_block(pool, size);
  if (bytes > capacity_ - reserved_) return kNoBlock;
  reserved_ += bytes;
  const BlockId id = new_block(addresses_.take(bytes), bytes, pool, -1);
  note(AllocatorEvent::Kind::segment_alloc, blocks_[id].address, bytes, pool);
  return id;
}

// ---- expandable segments -------------------------------------------------------------------------------------------

CachingAllocator::ExpandableSegment CachingAllocator::expandable_segment(std::uint64_t address) const {
  for (const ExpandableSegment& segment : expandables_)
    if (address >= segment.address && address - segment.address < static_cast<std::uint64_t>(segment.size)) return segment;
  return {};
}

bool CachingAllocator::has_room(BlockId first, std::int64_t size) const {
  std::int64_t room = 0;
  for (BlockId id = first; room < size && id != kNoBlock && blocks_[id].available(); id = blocks_[id].next) room += blocks_[id].size;
  return room >= size;
}

/// The lowest run of free and unmapped blocks with room for `size`; a new segment when there is none.
BlockId CachingAllocator::find_expandable_room(std::uint32_t pool_id, std::int64_t size) {
  for (BlockId id : pools_[pool_id].unmapped) {
    const BlockId previous = blocks_[id].previous;
    const BlockId first = previous != kNoBlock && blocks_[previous].available() ? previous : id;
    if (has_room(first, size)) return first;
  }
  const std::int64_t page = pools_[pool_id].small ? kSmallSegment : kLargeSegment;
  // 9/8 of the device, so that pages unmapped early can come back at the end.
  const std::int64_t space = round_up(std::max(capacity_, total_ + total_ / 8), page);
  const std::uint64_t address = addresses_.take(space);
  expandables_.push_back({address, space, page});
  const BlockId id = new_block(address, space, pool_id, static_cast<std::int32_t>(expandables_.size() - 1));
  blocks_[id].mapped = false;
  insert_unmapped(id);
  return id;
}

/// Gives pages to the first `size` bytes of an unmapped block and makes them free memory.
bool CachingAllocator::map(BlockId id, std::int64_t size) {
  const std::int64_t page = expandables_[static_cast<std::size_t>(blocks_[id].expandable)].page;
  const std::int64_t mapped = round_up(size, page);
  if (mapped > capacity_ - reserved_) return false;
  erase_unmapped(id);
  const Block whole = blocks_[id];
  blocks_[id].mapped = true;
  if (mapped < whole.size) {
    const BlockId rest = new_block(whole.address + static_cast<std::uint64_t>(mapped), whole.size - mapped, whole.pool, whole.expandable);
    blocks_[rest].mapped = false;
    blocks_[id].size = mapped;
    splice_after(rest, id);
    insert_unmapped(rest);
  }
  note(AllocatorEvent::Kind::segment_map, whole.address, mapped, whole.pool);
  merge(id, blocks_[id].previous);
  merge(id, blocks_[id].next);
  insert_free(id);
  reserved_ += mapped;
  return true;
}

BlockId CachingAllocator::take_expandable_block(std::uint32_t pool, std::int64_t size) {
  BlockId id = find_expandable_room(pool, size);
  if (!blocks_[id].mapped && !map(id, std::min(blocks_[id].size, size))) return kNoBlock;
  while (blocks_[id].size < size) {
    const BlockId next = blocks_[id].next;
    if (!map(next, std::min(size - blocks_[id].size, blocks_[next].size))) return kNoBlock;
    id = next;
  }
  erase_free(id);
  return id;
}

/// Takes the whole pages out of a free block.
void CachingAllocator::unmap(BlockId id) {
  const Block block = blocks_[id];
  const ExpandableSegment& segment = expandables_[static_cast<std::size_t>(block.expandable)];
  const auto offset = static_cast<std::int64_t>(block.address - segment.address);
  const std::int64_t begin = round_up(offset, segment.page), end = (offset + block.size) / segment.page * segment.page;
  if (begin >= end) return;
  erase_free(id);
  if (begin > offset) {
    const BlockId before = new_block(block.address, begin - offset, block.pool, block.expandable);
    splice_before(before, id);
    insert_free(before);
  }
  if (end < offset + block.size) {
    const std::uint64_t address = segment.address + static_cast<std::uint64_t>(end);
    const BlockId after = new_block(address, offset + block.size - end, block.pool, block.expandable);
    splice_after(after, id);
    insert_free(after);
  }
  blocks_[id].address = segment.address + static_cast<std::uint64_t>(begin);
  blocks_[id].size = end - begin;
  blocks_[id].mapped = false;
  note(AllocatorEvent::Kind::segment_unmap, blocks_[id].address, end - begin, block.pool);
  merge(id, blocks_[id].previous);
  merge(id, blocks_[id].next);
  insert_unmapped(id);
  reserved_ -= end - begin;
}

// ---- free ----------------------------------------------------------------------------------------------------------

/// Joins the block to its free neighbours, one of whose places in the list it takes.
inline void CachingAllocator::return_to_pool(BlockId id) {
  const BlockId previous = blocks_[id].previous, next = blocks_[id].next;
  const bool joins_previous = may_join(id, previous), joins_next = may_join(id, next);
  if (!joins_previous && !joins_next) return insert_free(id);
  Pool& pool = pools_[blocks_[id].pool];
  if (joins_previous && joins_next) erase_free(next);
  const Block& listed = blocks_[joins_previous ? previous : next];
  const FreeList::Cursor place = pool.free.find(listed.size, listed.address);
  if (joins_previous) join(id, previous);
  if (joins_next) join(id, next);
  blocks_[id].age_base = searches_[pool.small];
  pool.free.grow(place, entry_of(id));
}

void CachingAllocator::free(BlockId id) {
  Block& block = blocks_[id];
  block.allocated = false;
  allocated_ -= block.size;
  return block.uses == 0 ? return_to_pool(id) : delay(id);
}

/// The block comes back when the streams that use it are known to be done.
void CachingAllocator::delay(BlockId id) {
  for (std::size_t stream = 0; stream < pending_.size(); ++stream)
    if (blocks_[id].uses >> stream & 1) pending_[stream].push_back(id);
  any_pending_ = true;
}

void CachingAllocator::record_stream(BlockId block, StreamId stream) {
  if (stream >= pending_.size()) throw Error(ErrorCode::internal, "record_stream: more than 64 streams");
  if (stream != pools_[blocks_[block].pool].stream) blocks_[block].uses |= std::uint64_t{1} << stream;
}

void CachingAllocator::complete(StreamId stream) {
  if (!any_pending_ || stream >= pending_.size()) return;
  for (BlockId id : pending_[stream]) {
    blocks_[id].uses &= ~(std::uint64_t{1} << stream);
    if (blocks_[id].uses == 0) return_to_pool(id);
  }
  pending_[stream].clear();
}

void CachingAllocator::complete_block(BlockId id) {
  for (std::size_t stream = 0; stream < pending_.size(); ++stream) {
    if ((blocks_[id].uses >> stream & 1) == 0) continue;
    auto& waiting = pending_[stream];
    waiting.erase(std::find(waiting.begin(), waiting.end(), id));
  }
  blocks_[id].uses = 0;
  return_to_pool(id);
}

void CachingAllocator::complete_all() {
  if (!any_pending_) return;
  for (std::size_t stream = 0; stream < pending_.size(); ++stream) complete(static_cast<StreamId>(stream));
  any_pending_ = false;
}

// ---- giving memory back to the driver ------------------------------------------------------------------------------

void CachingAllocator::release_segment(BlockId id) {
  erase_free(id);
  note(AllocatorEvent::Kind::segment_free, blocks_[id].address, blocks_[id].size, blocks_[id].pool);
  addresses_.give_back(blocks_[id].address, blocks_[id].size);
  reserved_ -= blocks_[id].size;
  delete_block(id);
}

/// Above the threshold: gives back whole free segments of at least average age, the average taken anew until enough is reclaimed.
void CachingAllocator::collect_garbage() {
  const double threshold = settings_.garbage_collection_threshold * static_cast<double>(fraction_limit_);
  const auto limit = static_cast<std::int64_t>(threshold);
  if (reserved_ <= limit) return;
  const std::int64_t target = reserved_ - limit;
  const auto age = [&](BlockId id) { return searches_[0] - blocks_[id].age_base; };
  std::vector<BlockId> candidates;
  std::int64_t total_age = 0, reclaimed = 0;
  for (const Pool& pool : pools_) {
    if (pool.small) continue;
    for (auto cursor = pool.free.begin(); !pool.free.at_end(cursor); cursor = pool.free.next(cursor)) {
      const BlockId id = pool.free.at(cursor).block;
      if (blocks_[id].is_split() || blocks_[id].expandable >= 0) continue;
      candidates.push_back(id);
      total_age += age(id);
    }
  }
  for (bool freed = true; freed && reclaimed < target && !candidates.empty();) {
    const double average = static_cast<double>(total_age) / static_cast<double>(candidates.size());
    std::vector<BlockId> younger;
    for (BlockId id : candidates) {
      if (static_cast<double>(age(id)) < average) {
        younger.push_back(id);
        continue;
      }
      reclaimed += blocks_[id].size;
      total_age -= age(id);
      release_segment(id);
    }
    freed = younger.size() < candidates.size();
    candidates.swap(younger);
  }
}

/// With max_split_size: gives back the smallest oversize block that covers the request, or as many of the largest as it takes.
bool CachingAllocator::release_oversize(std::uint32_t pool_id, std::int64_t size) {
  if (max_split_ == std::numeric_limits<std::int64_t>::max() || settings_.expandable_segments) return false;
  FreeList& free = pools_[pool_id].free;
  const std::int64_t wanted = std::max(size, max_split_);
  const FreeList::Cursor cursor = free.lower_bound(wanted);
  if (!free.at_end(cursor)) {
    release_segment(free.at(cursor).block);
    return true;
  }
  std::int64_t released = 0;
  while (released < wanted && !free.empty() && free.back().size >= max_split_) {
    released += free.back().size;
    release_segment(free.back().block);
  }
  return released >= wanted;
}

void CachingAllocator::release_all() {
  complete_all();
  for (const bool small : {false, true})
    for (std::uint32_t pool = 0; pool < pools_.size(); ++pool)
      if (pools_[pool].small == small) release_pool(pool);
}

void CachingAllocator::release_pool(std::uint32_t pool_id) {
  std::vector<BlockId> whole, expandable;
  const FreeList& free = pools_[pool_id].free;
  for (auto cursor = free.begin(); !free.at_end(cursor); cursor = free.next(cursor)) {
    const BlockId id = free.at(cursor).block;
    if (blocks_[id].expandable >= 0)
      expandable.push_back(id);
    else if (!blocks_[id].is_split())
      whole.push_back(id);
  }
  for (BlockId id : whole) release_segment(id);
  for (BlockId id : expandable) {
    unmap(id);
    if (blocks_[id].is_split()) continue;
    erase_unmapped(id);
    delete_block(id);
  }
}

void CachingAllocator::empty_cache() { release_all(); }

// ---- what others see -----------------------------------------------------------------------------------------------

/// The first block of every contiguous range of memory, by address.
std::vector<BlockId> CachingAllocator::segment_heads() const {
  std::vector<std::pair<std::uint64_t, BlockId>> heads;
  for (BlockId id = 0; id < blocks_.size(); ++id) {
    const Block& block = blocks_[id];
    const bool starts = block.previous == kNoBlock || !blocks_[block.previous].mapped;
    if (block.size > 0 && block.mapped && starts) heads.emplace_back(block.address, id);
  }
  std::sort(heads.begin(), heads.end());
  std::vector<BlockId> ids;
  ids.reserve(heads.size());
  for (const auto& [address, id] : heads) ids.push_back(id);
  return ids;
}

std::vector<CachingAllocator::Segment> CachingAllocator::segments() const {
  std::vector<Segment> found;
  for (const BlockId head : segment_heads()) {
    const Block& first = blocks_[head];
    const Pool& pool = pools_[first.pool];
    Segment segment{first.address, 0, pool.stream, pool.small, first.expandable >= 0, {}};
    for (BlockId id = head; id != kNoBlock && blocks_[id].mapped; id = blocks_[id].next) {
      segment.size += blocks_[id].size;
      segment.blocks.push_back(id);
    }
    found.push_back(std::move(segment));
  }
  return found;
}

std::vector<std::uint64_t> CachingAllocator::state(const std::vector<TensorId>& holders) const {
  std::vector<std::uint64_t> state;
  state.reserve(4 * blocks_.size());
  for (const BlockId head : segment_heads()) {  // their order counts, their addresses do not
    state.push_back(std::uint64_t{blocks_[head].pool} << 1 | (blocks_[head].expandable >= 0 ? 1u : 0u));
    for (BlockId id = head; id != kNoBlock && blocks_[id].mapped; id = blocks_[id].next) {
      const Block& block = blocks_[id];
      state.push_back(static_cast<std::uint64_t>(block.size) << 1 | (block.allocated ? 1u : 0u));
      state.push_back(block.uses);
      if (block.allocated) state.push_back(holders[id]);
    }
    state.push_back(0);  // no block's size
  }
  return state;
}

}  // namespace plimsoll::memory

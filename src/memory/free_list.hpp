// The free blocks of one pool, ordered by (size, address): the order in which the caching allocator looks for the best fit.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll::memory {

using BlockId = std::uint32_t;

/// An ordered set of free blocks, binned by size (16 bins per power of two) so that insertion and removal touch a few entries
/// however many blocks are free. A bitmap finds the next bin that is not empty. What every allocation and free passes through is inline.
class FreeList {
 public:
  struct Entry {
    std::int64_t size;
    std::uint64_t address;
    BlockId block;
  };
  /// A place in the order; `bin` is kBins at the end.
  struct Cursor {
    std::size_t bin, position;
  };

  void insert(const Entry& entry) {
    const std::size_t index = bin_of(entry.size);
    bins_[index].insert(entry);
    occupied_[index / 64] |= std::uint64_t{1} << (index % 64);
  }
  /// Removes the block of that size and address, which must be present.
  void erase(std::int64_t size, std::uint64_t address) { erase(find(size, address)); }
  void erase(Cursor cursor) {
    Bin& bin = bins_[cursor.bin];
    bin.erase(cursor.position);
    if (bin.empty()) occupied_[cursor.bin / 64] &= ~(std::uint64_t{1} << (cursor.bin % 64));
  }
  /// Puts `entry` in the place of the larger one at `cursor`, whose front was split off.
  void shrink(Cursor cursor, const Entry& entry) {
    if (bin_of(entry.size) != cursor.bin || !bins_[cursor.bin].may_shrink(cursor.position, entry)) return move(cursor, entry);
    bins_[cursor.bin].at(cursor.position) = entry;
  }
  /// Puts `entry` in the place of the smaller one at `cursor`, which a neighbour has joined.
  void grow(Cursor cursor, const Entry& entry) {
    if (bin_of(entry.size) != cursor.bin || !bins_[cursor.bin].may_grow(cursor.position, entry)) return move(cursor, entry);
    bins_[cursor.bin].at(cursor.position) = entry;
  }
  /// Where the block of that size and address is, which must be present.
  Cursor find(std::int64_t size, std::uint64_t address) const {
    const std::size_t index = bin_of(size);
    return {index, bins_[index].lower_bound(size, address)};
  }

  Cursor begin() const { return first_at_or_after(0); }
  /// The first entry whose (size, address) is not below (size, 0).
  Cursor lower_bound(std::int64_t size) const {
    const std::size_t index = bin_of(size);
    const std::size_t position = bins_[index].lower_bound(size, 0);
    return position < bins_[index].size() ? Cursor{index, position} : first_at_or_after(index + 1);
  }
  Cursor end() const { return {kBins, 0}; }
  bool at_end(Cursor cursor) const { return cursor.bin == kBins; }
  Cursor next(Cursor cursor) const {
    if (cursor.position + 1 < bins_[cursor.bin].size()) return {cursor.bin, cursor.position + 1};
    return first_at_or_after(cursor.bin + 1);
  }
  const Entry& at(Cursor cursor) const { return bins_[cursor.bin][cursor.position]; }
  bool empty() const { return at_end(begin()); }
  /// The last entry, by (size, address); the list must not be empty.
  const Entry& back() const;

 private:
  static constexpr std::size_t kWords = 14;
  static constexpr std::size_t kBins = kWords * 64;

  void move(Cursor cursor, const Entry& entry) {
    erase(cursor);
    insert(entry);
  }

  static bool before(const Entry& entry, std::int64_t size, std::uint64_t address) {
    return entry.size != size ? entry.size < size : entry.address < address;
  }

  /// A sorted list that grows and shrinks at both ends: the micro-batches of a pipeline free hundreds of equal blocks in order of address
  /// and take them again in the same order, which in a vector would move all that are left each time.
  class Bin {
   public:
    std::size_t size() const { return end_ - begin_; }
    bool empty() const { return begin_ == end_; }
    const Entry& operator[](std::size_t position) const { return slots_[begin_ + position]; }
    Entry& at(std::size_t position) { return slots_[begin_ + position]; }
    const Entry& back() const { return slots_[end_ - 1]; }
    /// Whether the entry at `position` stays where it is when it becomes a smaller one, or a larger one.
    bool may_shrink(std::size_t position, const Entry& to) const {
      return position == 0 || before((*this)[position - 1], to.size, to.address);
    }
    bool may_grow(std::size_t position, const Entry& to) const {
      return begin_ + position + 1 == end_ || !before((*this)[position + 1], to.size, to.address);
    }
    /// The position of the first entry that is not below (size, address). The ends first: there is where most blocks come and go.
    std::size_t lower_bound(std::int64_t size, std::uint64_t address) const {
      if (empty() || !before(slots_[begin_], size, address)) return 0;
      if (before(back(), size, address)) return this->size();
      return lower_bound_within(size, address);
    }
    void insert(const Entry& entry) {
      if (begin_ == 0 || end_ == room_) make_room();
      const std::size_t position = lower_bound(entry.size, entry.address);
      if (position == size())
        slots_[end_++] = entry;
      else if (position == 0)
        slots_[--begin_] = entry;
      else
        insert_within(position, entry);
    }
    void erase(std::size_t position) {
      if (position == 0)
        ++begin_;
      else if (position + 1 == size())
        --end_;
      else
        erase_within(position);
      if (empty()) begin_ = end_ = room_ / 2;
    }

   private:
    void make_room();
    std::size_t lower_bound_within(std::int64_t size, std::uint64_t address) const;
    void insert_within(std::size_t position, const Entry& entry);
    void erase_within(std::size_t position);

    std::vector<Entry> slots_;
    std::uint32_t begin_ = 0, end_ = 0;  // the entries among the slots
    std::uint32_t room_ = 0;             // slots
  };

  /// Sizes are multiples of 512 bytes. With n = size / 512: below 32 a bin each, then 16 bins between two powers of two.
  static std::size_t bin_of(std::int64_t size) {
    const auto n = static_cast<std::uint64_t>(size) >> 9;
    const auto dropped = static_cast<unsigned>(std::bit_width(n | 16)) - 5;  // bits of n beyond the five that tell its bin
    return (std::size_t{dropped} << 4) + static_cast<std::size_t>(n >> dropped);
  }

  Cursor first_at_or_after(std::size_t bin) const {
    std::size_t word = bin / 64;
    std::uint64_t bits = occupied_[word] & ~std::uint64_t{0} << (bin % 64);
    while (bits == 0) {
      if (++word > kWords) return end();
      bits = occupied_[word];
    }
    return {word * 64 + static_cast<std::size_t>(__builtin_ctzll(bits)), 0};
  }

  std::array<Bin, kBins> bins_;
  std::array<std::uint64_t, kWords + 1> occupied_{};  // a bit per bin; one word more for the place behind the last
};

}  // namespace plimsoll::memory

// The free blocks of one pool, ordered by (size, address): the order in which the caching allocator looks for the best fit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll::memory {

using BlockId = std::uint32_t;

/// An ordered set of free blocks, binned by size (16 bins per power of two) so that insertion and removal touch a few entries
/// however many blocks are free. A bitmap finds the next bin that is not empty.
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

  void insert(const Entry& entry);
  /// Removes the block of that size and address, which must be present.
  void erase(std::int64_t size, std::uint64_t address) { erase(find(size, address)); }
  void erase(Cursor cursor);
  /// Puts `entry` in the place of the one at `cursor`: a block that was split or has grown.
  void replace(Cursor cursor, const Entry& entry);
  /// Where the block of that size and address is, which must be present.
  Cursor find(std::int64_t size, std::uint64_t address) const;

  Cursor begin() const;
  /// The first entry whose (size, address) is not below (size, 0).
  Cursor lower_bound(std::int64_t size) const;
  Cursor end() const { return {kBins, 0}; }
  bool at_end(Cursor cursor) const { return cursor.bin == kBins; }
  Cursor next(Cursor cursor) const;
  const Entry& at(Cursor cursor) const { return bins_[cursor.bin][cursor.position]; }
  bool empty() const { return at_end(begin()); }
  /// The last entry, by (size, address); the list must not be empty.
  const Entry& back() const;

 private:
  static constexpr std::size_t kWords = 14;
  static constexpr std::size_t kBins = kWords * 64;

  /// A sorted list that grows and shrinks at both ends: the micro-batches of a pipeline free hundreds of equal blocks in order of address
  /// and take them again in the same order, which in a vector would move all that are left each time.
  class Bin {
   public:
    std::size_t size() const { return end_ - begin_; }
    bool empty() const { return begin_ == end_; }
    const Entry& operator[](std::size_t position) const { return slots_[begin_ + position]; }
    const Entry& back() const { return slots_[end_ - 1]; }
    /// The position of the first entry that is not below (size, address).
    std::size_t lower_bound(std::int64_t size, std::uint64_t address) const;
    void insert(const Entry& entry);
    void erase(std::size_t position);
    void replace(std::size_t position, const Entry& entry);

   private:
    void make_room();

    std::vector<Entry> slots_;
    std::size_t begin_ = 0, end_ = 0;  // the entries among the slots
  };

  static std::size_t bin_of(std::int64_t size);
  Cursor first_at_or_after(std::size_t bin) const;

  std::array<Bin, kBins> bins_;
  std::array<std::uint64_t, kWords> occupied_{};
};

}  // namespace plimsoll::memory

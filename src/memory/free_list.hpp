// The free blocks of one pool, ordered by (size, address): the order in which the caching allocator looks for the best fit.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace plimsoll::memory {

using BlockId = std::uint32_t;

/// An ordered set of free blocks, binned by size (16 bins per power of two) so that insertion and removal touch a few entries
/// however many blocks are free. Every bin is a sorted vector; a bitmap finds the next bin that is not empty.
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

  Cursor begin() const;
  /// The first entry whose (size, address) is not below (size, 0).
  Cursor lower_bound(std::int64_t size) const;
  bool at_end(Cursor cursor) const { return cursor.bin == kBins; }
  Cursor next(Cursor cursor) const;
  const Entry& at(Cursor cursor) const { return bins_[cursor.bin][cursor.position]; }
  bool empty() const { return at_end(begin()); }
  /// The last entry, by (size, address); the list must not be empty.
  const Entry& back() const;

 private:
  static constexpr std::size_t kWords = 14;
  static constexpr std::size_t kBins = kWords * 64;

  static std::size_t bin_of(std::int64_t size);
  Cursor find(std::int64_t size, std::uint64_t address) const;
  Cursor first_at_or_after(std::size_t bin) const;

  std::array<std::vector<Entry>, kBins> bins_;
  std::array<std::uint64_t, kWords> occupied_{};
};

}  // namespace plimsoll::memory

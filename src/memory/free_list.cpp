#include "memory/free_list.hpp"

#include <algorithm>

namespace plimsoll::memory {
namespace {

bool before(const FreeList::Entry& entry, std::int64_t size, std::uint64_t address) {
  return entry.size != size ? entry.size < size : entry.address < address;
}

std::size_t floor_log2(std::uint64_t n) { return 63 - static_cast<std::size_t>(__builtin_clzll(n)); }

}  // namespace

// ---- one bin -------------------------------------------------------------------------------------------------------

inline std::size_t FreeList::Bin::lower_bound(std::int64_t size, std::uint64_t address) const {
  // The ends first: there is where most blocks come and go.
  if (empty() || !before(slots_[begin_], size, address)) return 0;
  if (before(back(), size, address)) return this->size();
  std::size_t low = begin_ + 1, high = end_ - 1;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (before(slots_[middle], size, address))
      low = middle + 1;
    else
      high = middle;
  }
  return low - begin_;
}

/// Moves the entries to the middle of the slots, of which there are more where they were half full.
void FreeList::Bin::make_room() {
  const std::size_t count = size();
  std::vector<Entry> wider;
  if (2 * count >= slots_.size()) wider.resize(4 * count + 4);
  auto& to = wider.empty() ? slots_ : wider;
  const std::size_t begin = (to.size() - count) / 2;
  const Entry *const from = slots_.data() + begin_, *const until = from + count;
  if (begin > begin_ && wider.empty())
    std::copy_backward(from, until, to.data() + begin + count);
  else
    std::copy(from, until, to.data() + begin);
  if (!wider.empty()) slots_ = std::move(wider);
  begin_ = begin;
  end_ = begin + count;
}

/// The shorter side makes room.
inline void FreeList::Bin::insert(const Entry& entry) {
  if (begin_ == 0 || end_ == slots_.size()) make_room();
  const std::size_t position = lower_bound(entry.size, entry.address);
  Entry* const at = slots_.data() + begin_ + position;
  if (2 * position < size()) {
    std::copy(slots_.data() + begin_, at, slots_.data() + begin_ - 1);
    --begin_;
    *(at - 1) = entry;
  } else {
    std::copy_backward(at, slots_.data() + end_, slots_.data() + end_ + 1);
    ++end_;
    *at = entry;
  }
}

inline void FreeList::Bin::erase(std::size_t position) {
  Entry* const at = slots_.data() + begin_ + position;
  if (2 * position < size()) {
    std::copy_backward(slots_.data() + begin_, at, at + 1);
    ++begin_;
  } else {
    std::copy(at + 1, slots_.data() + end_, at);
    --end_;
  }
  if (empty()) begin_ = end_ = slots_.size() / 2;
}

inline void FreeList::Bin::replace(std::size_t position, const Entry& entry) {
  const bool above = position == 0 || before((*this)[position - 1], entry.size, entry.address);
  if (above && (position + 1 == size() || !before((*this)[position + 1], entry.size, entry.address))) {
    slots_[begin_ + position] = entry;
    return;
  }
  erase(position);
  insert(entry);
}

// ---- all bins ------------------------------------------------------------------------------------------------------

// Sizes are multiples of 512 bytes. With n = size / 512: below 16 a bin each, then 16 bins between two powers of two.
inline std::size_t FreeList::bin_of(std::int64_t size) {
  const auto n = static_cast<std::uint64_t>(size) >> 9;
  if (n < 16) return static_cast<std::size_t>(n);
  const std::size_t power = floor_log2(n);
  return ((power - 3) << 4) | static_cast<std::size_t>((n >> (power - 4)) & 15);
}

void FreeList::insert(const Entry& entry) {
  const std::size_t index = bin_of(entry.size);
  bins_[index].insert(entry);
  occupied_[index / 64] |= std::uint64_t{1} << (index % 64);
}

FreeList::Cursor FreeList::find(std::int64_t size, std::uint64_t address) const {
  const std::size_t index = bin_of(size);
  return {index, bins_[index].lower_bound(size, address)};
}

void FreeList::erase(Cursor cursor) {
  Bin& bin = bins_[cursor.bin];
  bin.erase(cursor.position);
  if (bin.empty()) occupied_[cursor.bin / 64] &= ~(std::uint64_t{1} << (cursor.bin % 64));
}

void FreeList::replace(Cursor cursor, const Entry& entry) {
  if (bin_of(entry.size) == cursor.bin) return bins_[cursor.bin].replace(cursor.position, entry);
  erase(cursor);
  insert(entry);
}

FreeList::Cursor FreeList::first_at_or_after(std::size_t bin) const {
  for (std::size_t word = bin / 64; word < kWords; ++word) {
    const std::uint64_t mask = word == bin / 64 ? ~std::uint64_t{0} << (bin % 64) : ~std::uint64_t{0};
    const std::uint64_t bits = occupied_[word] & mask;
    if (bits) return {word * 64 + static_cast<std::size_t>(__builtin_ctzll(bits)), 0};
  }
  return {kBins, 0};
}

FreeList::Cursor FreeList::begin() const { return first_at_or_after(0); }

FreeList::Cursor FreeList::lower_bound(std::int64_t size) const {
  const std::size_t index = bin_of(size);
  const std::size_t position = bins_[index].lower_bound(size, 0);
  return position < bins_[index].size() ? Cursor{index, position} : first_at_or_after(index + 1);
}

FreeList::Cursor FreeList::next(Cursor cursor) const {
  if (cursor.position + 1 < bins_[cursor.bin].size()) return {cursor.bin, cursor.position + 1};
  return first_at_or_after(cursor.bin + 1);
}

const FreeList::Entry& FreeList::back() const {
  std::size_t word = kWords - 1;
  while (!occupied_[word]) --word;
  return bins_[word * 64 + floor_log2(occupied_[word])].back();
}

}  // namespace plimsoll::memory

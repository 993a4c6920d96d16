#include "memory/free_list.hpp"

#include <algorithm>

namespace plimsoll::memory {
namespace {

bool before(const FreeList::Entry& a, const FreeList::Entry& b) { return a.size != b.size ? a.size < b.size : a.address < b.address; }

std::size_t floor_log2(std::uint64_t n) { return 63 - static_cast<std::size_t>(__builtin_clzll(n)); }

}  // namespace

// Sizes are multiples of 512 bytes. With n = size / 512: below 16 a bin each, then 16 bins between two powers of two.
std::size_t FreeList::bin_of(std::int64_t size) {
  const auto n = static_cast<std::uint64_t>(size) >> 9;
  if (n < 16) return static_cast<std::size_t>(n);
  const std::size_t power = floor_log2(n);
  return ((power - 3) << 4) | static_cast<std::size_t>((n >> (power - 4)) & 15);
}

void FreeList::insert(const Entry& entry) {
  const std::size_t index = bin_of(entry.size);
  auto& bin = bins_[index];
  bin.insert(std::upper_bound(bin.begin(), bin.end(), entry, before), entry);
  occupied_[index / 64] |= std::uint64_t{1} << (index % 64);
}

FreeList::Cursor FreeList::find(std::int64_t size, std::uint64_t address) const {
  const std::size_t index = bin_of(size);
  const auto& bin = bins_[index];
  return {index, static_cast<std::size_t>(std::lower_bound(bin.begin(), bin.end(), Entry{size, address, 0}, before) - bin.begin())};
}

void FreeList::erase(Cursor cursor) {
  auto& bin = bins_[cursor.bin];
  bin.erase(bin.begin() + static_cast<std::ptrdiff_t>(cursor.position));
  if (bin.empty()) occupied_[cursor.bin / 64] &= ~(std::uint64_t{1} << (cursor.bin % 64));
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
  const auto& bin = bins_[index];
  const auto found = std::lower_bound(bin.begin(), bin.end(), Entry{size, 0, 0}, before);
  if (found != bin.end()) return {index, static_cast<std::size_t>(found - bin.begin())};
  return first_at_or_after(index + 1);
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

/// Temporary storage of the cub algorithms that PyTorch's operators call.
#pragma once

#include <cstdint>

#include "plimsoll/units.hpp"

namespace plimsoll::program::cub {

constexpr std::int64_t kAlignment = 256;  ///< of its parts, one alignment less a byte in front

inline std::int64_t aligned(std::int64_t bytes) { return round_up(bytes, kAlignment); }

/// Passes of 8 bits over keys up to `largest_key`.
inline std::int64_t radix_sort_passes(std::int64_t largest_key) {
  std::int64_t bits = 0;
  for (std::int64_t key = largest_key; key > 0; key >>= 1) ++bits;
  return ceil_div(bits, 8);
}

constexpr std::int64_t kSingleTile = 2304;  ///< the most pairs that one block sorts at once (DispatchRadixSort::InvokeSingleTile)

/// Kernels of a radix sort of n pairs of 64-bit keys and values: one where a single tile holds them all, else the histogram, the sum over
/// it, and one for each pass (DeviceRadixSortOnesweepKernel).
inline std::int64_t radix_sort_launches(std::int64_t n, std::int64_t largest_key) {
  return n <= kSingleTile ? 1 : 2 + radix_sort_passes(largest_key);
}

/// Temporary storage of cub's radix sort of n pairs of 64-bit keys and values: two buffers, 256 counters per pass of 8 bits and
/// per tile of 4,608 pairs; one byte where a single tile needs none. Read off PyTorch 2.15's caching allocator for 3,073 to 131,072
/// indices.
inline std::int64_t radix_sort_bytes(std::int64_t n, std::int64_t largest_key) {
  if (n <= kSingleTile) return 1;
  const std::int64_t passes = radix_sort_passes(largest_key), tiles = ceil_div(n, 4608);
  const std::int64_t buffers = passes > 1 ? 2 * aligned(8 * n) : 0;  // a single pass goes straight to the output
  return buffers + passes * 256 * 8 + tiles * 256 * 4 + kAlignment + (kAlignment - 1);
}

}  // namespace plimsoll::program::cub

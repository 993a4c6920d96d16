// Memory alone: copy, triad, repeated reads of a cache's worth, a chain of dependent loads; and the launch of nothing.
#pragma once

#include "calibrate/kernels/device/target.hpp"

namespace PLIMSOLL_DEVICE {

PLIMSOLL_KERNEL(empty)() {}

PLIMSOLL_KERNEL(copy)(const f32x4* source, f32x4* destination, u64 count) {
  for (u64 i = grid_thread(); i < count / 4; i += grid_threads()) destination[i] = source[i];
}

PLIMSOLL_KERNEL(triad)(const f32x4* b, const f32x4* c, f32x4* a, u64 count, float scale) {
  for (u64 i = grid_thread(); i < count / 4; i += grid_threads()) a[i] = b[i] + scale * c[i];
}

// Every block reads `passes` chunks of 4 KiB one after the other, beginning elsewhere than its neighbours, around a buffer of a power of
// two of chunks: what is read again comes from the smallest cache that holds the buffer.
PLIMSOLL_KERNEL(cache_read)(const f32x4* source, float* sums, u64 count, int passes) {
  const u64 chunks = count / 4 / kThreads;
  f32x4 sum[4] = {};
  u64 chunk = static_cast<u64>(block_index()) * static_cast<u64>(passes);
  for (int pass = 0; pass < passes; pass += 4) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sum[j] += source[((chunk + static_cast<u64>(j)) & (chunks - 1)) * kThreads + static_cast<u64>(thread_index())];
    chunk += 4;
  }
  const f32x4 total = sum[0] + sum[1] + (sum[2] + sum[3]);
  sums[grid_thread()] = total[0] + total[1] + (total[2] + total[3]);
}

PLIMSOLL_KERNEL(pointer_chase)(const int* next, int* last, int steps) {
  if (thread_index() != 0) return;
  int at = 0;
  for (int i = 0; i < steps; ++i) at = next[at];
  *last = at;
}

}  // namespace PLIMSOLL_DEVICE

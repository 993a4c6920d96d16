// Collectives over peer access: one launch of the same kernel on every rank. Every rank owns 1 / ranks of the elements. Block b of each
// rank works on the same part of every slice, so blocks of the same number wait for each other and for nobody else; the grid must fit
// on the device at once.
#pragma once

#include "calibrate/kernels/device/target.hpp"

namespace PLIMSOLL_DEVICE {

constexpr int kMostRanks = 16;

struct Ranks {
  u32* const* flags;  // [rank] → its flags, [block][rank]
  int rank, count;
};

// All ranks' blocks of this number have come here. `ticket` rises with every meeting.
PLIMSOLL_FUNCTION void meet(const Ranks& ranks, u32 ticket) {
  system_fence();
  barrier();
  const int peer = thread_index();
  if (peer < ranks.count) {
    store_for_peers(ranks.flags[peer] + block_index() * kMostRanks + ranks.rank, ticket);
    const u32* flag = ranks.flags[ranks.rank] + block_index() * kMostRanks + peer;
    while (static_cast<int>(load_from_peers(flag) - ticket) < 0) spin();
  }
  barrier();
  system_fence();
}

// Elements of one 16-byte vector, widened for the sum.
struct Sum8 {
  f32x4 low, high;
};
PLIMSOLL_FUNCTION void accumulate(f32x4& sum, u32x4 v, float*) { sum += __builtin_bit_cast(f32x4, v); }
PLIMSOLL_FUNCTION u32x4 narrow(f32x4 sum, float*) { return __builtin_bit_cast(u32x4, sum); }
PLIMSOLL_FUNCTION void accumulate(Sum8& sum, u32x4 v, bf16*) {
  const u16x8 e = __builtin_bit_cast(u16x8, v);
  sum.low += f32x4{bf16_lane(e, 0), bf16_lane(e, 1), bf16_lane(e, 2), bf16_lane(e, 3)};
  sum.high += f32x4{bf16_lane(e, 4), bf16_lane(e, 5), bf16_lane(e, 6), bf16_lane(e, 7)};
}
PLIMSOLL_FUNCTION u32x4 narrow(const Sum8& sum, bf16*) {
  const u16x8 e{to_bf16(sum.low[0]).bits,  to_bf16(sum.low[1]).bits,  to_bf16(sum.low[2]).bits,  to_bf16(sum.low[3]).bits,
                to_bf16(sum.high[0]).bits, to_bf16(sum.high[1]).bits, to_bf16(sum.high[2]).bits, to_bf16(sum.high[3]).bits};
  return __builtin_bit_cast(u32x4, e);
}
template <class T>
struct SumOf {
  using Type = f32x4;
};
template <>
struct SumOf<bf16> {
  using Type = Sum8;
};

// The own slice becomes the sum over ranks, in rank order: every rank would compute the same bits.
template <class T>
PLIMSOLL_FUNCTION void reduce_own_slice(u32x4* const* data, const Ranks& ranks, u64 slice) {
  const u64 start = slice * static_cast<u64>(ranks.rank);
  for (u64 i = grid_thread(); i < slice; i += grid_threads()) {
    typename SumOf<T>::Type sum{};
    for (int r = 0; r < ranks.count; ++r) accumulate(sum, data[r][start + i], static_cast<T*>(nullptr));
    data[ranks.rank][start + i] = narrow(sum, static_cast<T*>(nullptr));
  }
}

// Every peer's slice is copied here, beginning with the next rank so that no rank is read by all at once.
PLIMSOLL_FUNCTION void gather_slices(u32x4* const* data, const Ranks& ranks, u64 slice) {
  for (int step = 1; step < ranks.count; ++step) {
    const int peer = (ranks.rank + step) % ranks.count;
    const u64 start = slice * static_cast<u64>(peer);
    for (u64 i = grid_thread(); i < slice; i += grid_threads()) data[ranks.rank][start + i] = data[peer][start + i];
  }
}

template <class T>
PLIMSOLL_FUNCTION u64 slice_vectors(u64 count, int ranks) {
  return count / static_cast<u64>(ranks) / (16 / sizeof(T));
}

template <class T>
PLIMSOLL_FUNCTION void all_reduce(u32x4* const* data, const Ranks& ranks, u64 count, u32 epoch) {
  const u64 slice = slice_vectors<T>(count, ranks.count);
  meet(ranks, 3 * epoch + 1);
  reduce_own_slice<T>(data, ranks, slice);
  meet(ranks, 3 * epoch + 2);
  gather_slices(data, ranks, slice);
  meet(ranks, 3 * epoch + 3);
}

PLIMSOLL_KERNEL(all_reduce_fp32)(u32x4* const* data, u32* const* flags, u64 count, int ranks, int rank, int epoch) {
  all_reduce<float>(data, {flags, rank, ranks}, count, static_cast<u32>(epoch));
}
PLIMSOLL_KERNEL(all_reduce_bf16)(u32x4* const* data, u32* const* flags, u64 count, int ranks, int rank, int epoch) {
  all_reduce<bf16>(data, {flags, rank, ranks}, count, static_cast<u32>(epoch));
}

// Before: rank r's own slice in its place. After: all slices everywhere.
PLIMSOLL_KERNEL(all_gather_fp32)(u32x4* const* data, u32* const* flags, u64 count, int ranks, int rank, int epoch) {
  const Ranks all{flags, rank, ranks};
  meet(all, 3 * static_cast<u32>(epoch) + 1);
  gather_slices(data, all, slice_vectors<float>(count, ranks));
  meet(all, 3 * static_cast<u32>(epoch) + 3);
}

// After: rank r's own slice holds the sum; the rest is as before.
PLIMSOLL_KERNEL(reduce_scatter_fp32)(u32x4* const* data, u32* const* flags, u64 count, int ranks, int rank, int epoch) {
  const Ranks all{flags, rank, ranks};
  meet(all, 3 * static_cast<u32>(epoch) + 1);
  reduce_own_slice<float>(data, all, slice_vectors<float>(count, ranks));
  meet(all, 3 * static_cast<u32>(epoch) + 3);
}

}  // namespace PLIMSOLL_DEVICE

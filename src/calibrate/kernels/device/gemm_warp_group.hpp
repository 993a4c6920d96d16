// The product with Hopper's warp-group instructions: a block computes 128 x 256 of C, each of its two groups 64 rows of it. While the
// groups multiply one 64-byte slice of k, the next is stored beside it and the one after that is on its way.
#pragma once

#include "calibrate/kernels/device/gemm.hpp"
#include "calibrate/kernels/device/warp_group.hpp"

namespace PLIMSOLL_DEVICE {

constexpr int kSliceChunks = 4;  // of a row: what 48 KiB of shared memory hold twice
constexpr int kGroupBlockRows = kThreads / kGroupLanes * kGroupRowsA;

// What a thread brings of the next slice.
struct GroupInFlight {
  u32x4 a[kGroupBlockRows * kSliceChunks / kThreads], b[kGroupRowsB * kSliceChunks / kThreads];
};

template <int kCount>
PLIMSOLL_FUNCTION void fetch_rows(u32x4 (&to)[kCount], const u32x4* rows, int first, int limit, int row_chunks, int slice) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int at = thread_index() + i * kThreads, row = at_most(first + at / kSliceChunks, limit - 1);
    to[i] = rows[static_cast<u64>(row) * static_cast<u64>(row_chunks) + static_cast<u64>(slice * kSliceChunks + at % kSliceChunks)];
  }
}

template <int kCount>
PLIMSOLL_FUNCTION void store_rows(const u32x4 (&from)[kCount], u32x4* shared) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int at = thread_index() + i * kThreads;
    shared[group_place<kSliceChunks>(at / kSliceChunks, at % kSliceChunks)] = from[i];
  }
}

template <class T, class Out>
PLIMSOLL_FUNCTION void gemm_group(const u32x4* a, const u32x4* b, Out* c, int m, int n, int k) {
  constexpr int kBufferA = kGroupBlockRows * kSliceChunks, kBufferB = kGroupRowsB * kSliceChunks;
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_a, 2 * kBufferA);
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_b, 2 * kBufferB);
  const BlockPlace place = block_place(block_index(), (m + kGroupBlockRows - 1) / kGroupBlockRows, (n + kGroupRowsB - 1) / kGroupRowsB);
  const int first_row = place.row * kGroupBlockRows, first_column = place.column * kGroupRowsB;
  const int row_chunks = k / (16 / static_cast<int>(sizeof(typename ElementOf<T>::Type))), slices = row_chunks / kSliceChunks;
  const int group = thread_index() / kGroupLanes;
  GroupAccumulator d;
  clear(d);

  GroupInFlight next;
  const auto fetch = [&](int slice) {  // slices beyond the last are the last once more
    fetch_rows(next.a, a, first_row, m, row_chunks, at_most(slice, slices - 1));
    fetch_rows(next.b, b, first_column, n, row_chunks, at_most(slice, slices - 1));
  };
  const auto store = [&](int buffer) {
    store_rows(next.a, shared_a + buffer * kBufferA);
    store_rows(next.b, shared_b + buffer * kBufferB);
    group_sees_shared_memory();
  };
  fetch(0);
  store(0);
  fetch(1);
  barrier();
  for (int slice = 0; slice < slices; ++slice) {
    const int used = slice % 2;
    const Operand left = shared_operand<kSliceChunks>(shared_a + used * kBufferA + group * kGroupRowsA * kSliceChunks),
                  right = shared_operand<kSliceChunks>(shared_b + used * kBufferB);
    group_begin();
#pragma unroll
    for (int step = 0; step < kSliceChunks / 2; ++step) {
      multiply_add_group(d, further_along_k(left, step * kInstructionBytes), further_along_k(right, step * kInstructionBytes),
                         static_cast<T*>(nullptr));
    }
    group_commit(d);
    store(1 - used);
    fetch(slice + 2);
    group_wait<0>(d);
    barrier();
  }
#pragma unroll
  for (int i = 0; i < kGroupValues; ++i) {
    const int row = first_row + group * kGroupRowsA + group_row(i), column = first_column + group_column(i);
    if (row < m && column < n)
      c[static_cast<u64>(row) * static_cast<u64>(n) + static_cast<u64>(column)] = from_accumulator<Out>(d.value[i]);
  }
}

PLIMSOLL_KERNEL(gemm_bf16_wgmma)(const u32x4* a, const u32x4* b, bf16* c, int m, int n, int k) { gemm_group<bf16>(a, b, c, m, n, k); }
PLIMSOLL_KERNEL(gemm_fp16_wgmma)(const u32x4* a, const u32x4* b, fp16* c, int m, int n, int k) { gemm_group<fp16>(a, b, c, m, n, k); }
PLIMSOLL_KERNEL(gemm_tf32_wgmma)(const u32x4* a, const u32x4* b, float* c, int m, int n, int k) { gemm_group<tf32>(a, b, c, m, n, k); }
PLIMSOLL_KERNEL(gemm_fp8_wgmma)(const u32x4* a, const u32x4* b, bf16* c, int m, int n, int k) { gemm_group<fp8>(a, b, c, m, n, k); }

}  // namespace PLIMSOLL_DEVICE

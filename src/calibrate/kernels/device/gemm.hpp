// C = A·Bᵀ: A is m x k, B is n x k (a Linear layer's input and weight), both contiguous along k. A block computes 128 x 128 of C; its
// waves share 64-byte slices of 128 rows of A and B through two buffers of shared memory, one being filled while the other is used.
#pragma once

#include "calibrate/kernels/device/tile.hpp"

namespace PLIMSOLL_DEVICE {

constexpr int kBlockRows = 128;   // of C, and columns
constexpr int kWaveRowTiles = 4;  // two rows of waves
constexpr int kWaveColumnTiles = kBlockRows / 16 / (kWaves / 2);
constexpr int kGroupRows = 8;  // blocks of so many rows of blocks go together, for the sake of the cache

template <class T>
struct Slice {
  static constexpr int kChunks = Tile<T>::kStepBytes / 16;            // of one row
  static constexpr int kPerThread = kBlockRows * kChunks / kThreads;  // chunks that a thread brings
  // Neighbouring rows' chunks lie in other banks: the 16 rows that a wave reads together cover all of them.
  PLIMSOLL_FUNCTION int place(int row, int chunk) { return row * kChunks + (chunk ^ (row * kChunks / 8 % kChunks)); }
};

template <class T>
struct InFlight {
  u32x4 a[Slice<T>::kPerThread], b[Slice<T>::kPerThread];
};

PLIMSOLL_FUNCTION int at_most(int value, int limit) { return value < limit ? value : limit; }

// The two operands from the first row that the block needs; rows beyond the matrix repeat its last, and their products are not stored.
template <class T>
PLIMSOLL_FUNCTION InFlight<T> fetch_slice(const u32x4* a, const u32x4* b, int row, int column, int m, int n, int row_chunks, int slice) {
  InFlight<T> fetched;
#pragma unroll
  for (int i = 0; i < Slice<T>::kPerThread; ++i) {
    const int at = thread_index() + i * kThreads, r = at / Slice<T>::kChunks;
    const u64 chunk = static_cast<u64>(slice * Slice<T>::kChunks + at % Slice<T>::kChunks);
    fetched.a[i] = a[static_cast<u64>(at_most(row + r, m - 1)) * static_cast<u64>(row_chunks) + chunk];
    fetched.b[i] = b[static_cast<u64>(at_most(column + r, n - 1)) * static_cast<u64>(row_chunks) + chunk];
  }
  return fetched;
}

template <class T>
PLIMSOLL_FUNCTION void store_slice(const InFlight<T>& fetched, u32x4* a, u32x4* b) {
#pragma unroll
  for (int i = 0; i < Slice<T>::kPerThread; ++i) {
    const int at = thread_index() + i * kThreads, place = Slice<T>::place(at / Slice<T>::kChunks, at % Slice<T>::kChunks);
    a[place] = fetched.a[i];
    b[place] = fetched.b[i];
  }
}

template <class T>
PLIMSOLL_FUNCTION void multiply_slice(Tile<T> (&c)[kWaveRowTiles][kWaveColumnTiles], const u32x4* a, const u32x4* b, int row, int column) {
  using Fragment = typename Tile<T>::Fragment;
  Fragment left[kWaveRowTiles], right[kWaveColumnTiles];
#pragma unroll
  for (int i = 0; i < kWaveRowTiles; ++i) {
    left[i] = Fragment::load([&](int r, int chunk) { return a + Slice<T>::place(row + 16 * i + r, chunk); });
  }
#pragma unroll
  for (int j = 0; j < kWaveColumnTiles; ++j) {
    right[j] = Fragment::load([&](int r, int chunk) { return b + Slice<T>::place(column + 16 * j + r, chunk); });
  }
#pragma unroll
  for (int i = 0; i < kWaveRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kWaveColumnTiles; ++j) multiply_add(c[i][j], left[i], right[j]);
  }
}

struct BlockPlace {
  int row, column;
};

// Block b of a grid of row_blocks x column_blocks, in groups of kGroupRows rows of blocks, column by column within a group.
PLIMSOLL_FUNCTION BlockPlace block_place(int block, int row_blocks, int column_blocks) {
  const int group = block / (kGroupRows * column_blocks), first = group * kGroupRows;
  const int rows = at_most(row_blocks - first, kGroupRows), within = block - first * column_blocks;
  return {first + within % rows, within / rows};
}

template <class T, class Out>
PLIMSOLL_FUNCTION void gemm(const u32x4* a, const u32x4* b, Out* c, int m, int n, int k) {
  constexpr int kBuffer = kBlockRows * Slice<T>::kChunks;
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_a, 2 * kBuffer);
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_b, 2 * kBuffer);
  const BlockPlace place = block_place(block_index(), (m + kBlockRows - 1) / kBlockRows, (n + kBlockRows - 1) / kBlockRows);
  const int first_row = place.row * kBlockRows, first_column = place.column * kBlockRows;
  const int row_chunks = k / (16 / static_cast<int>(sizeof(typename ElementOf<T>::Type))), slices = row_chunks / Slice<T>::kChunks;
  const int wave_row = wave_index() % 2 * 16 * kWaveRowTiles, wave_column = wave_index() / 2 * 16 * kWaveColumnTiles;
  Tile<T> accumulator[kWaveRowTiles][kWaveColumnTiles];
#pragma unroll
  for (int i = 0; i < kWaveRowTiles * kWaveColumnTiles; ++i) clear(accumulator[i / kWaveColumnTiles][i % kWaveColumnTiles]);

  // Slices beyond the last are the last once more, rather than a branch.
  const auto fetch = [&](int slice) { return fetch_slice<T>(a, b, first_row, first_column, m, n, row_chunks, at_most(slice, slices - 1)); };
  store_slice(fetch(0), shared_a, shared_b);
  InFlight<T> next = fetch(1);
  barrier();
  for (int slice = 0; slice < slices; ++slice) {
    const int used = slice % 2 * kBuffer, filled = kBuffer - used;
    store_slice(next, shared_a + filled, shared_b + filled);
    next = fetch(slice + 2);  // has the whole of this product to arrive
    issue_before_what_follows();
    multiply_slice<T>(accumulator, shared_a + used, shared_b + used, wave_row, wave_column);
    barrier();
  }
#pragma unroll
  for (int i = 0; i < kWaveRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kWaveColumnTiles; ++j) {
#pragma unroll
      for (int v = 0; v < Tile<T>::kValues; ++v) {
        const int row = first_row + wave_row + 16 * i + Tile<T>::row(v), column = first_column + wave_column + 16 * j + Tile<T>::column(v);
        if (row < m && column < n) {
          c[static_cast<u64>(row) * static_cast<u64>(n) + static_cast<u64>(column)] = from_accumulator<Out>(accumulator[i][j].value[v]);
        }
      }
    }
  }
}

PLIMSOLL_KERNEL(gemm_bf16)(const u32x4* a, const u32x4* b, bf16* c, int m, int n, int k) { gemm<bf16>(a, b, c, m, n, k); }
PLIMSOLL_KERNEL(gemm_fp16)(const u32x4* a, const u32x4* b, fp16* c, int m, int n, int k) { gemm<fp16>(a, b, c, m, n, k); }
PLIMSOLL_KERNEL(gemm_fp64)(const u32x4* a, const u32x4* b, double* c, int m, int n, int k) { gemm<double>(a, b, c, m, n, k); }
#if PLIMSOLL_FP8
PLIMSOLL_KERNEL(gemm_fp8)(const u32x4* a, const u32x4* b, bf16* c, int m, int n, int k) { gemm<fp8>(a, b, c, m, n, k); }
#endif
#if defined(PLIMSOLL_NVIDIA)
PLIMSOLL_KERNEL(gemm_tf32)(const u32x4* a, const u32x4* b, float* c, int m, int n, int k) { gemm<tf32>(a, b, c, m, n, k); }
#else
PLIMSOLL_KERNEL(gemm_fp32)(const u32x4* a, const u32x4* b, float* c, int m, int n, int k) { gemm<float>(a, b, c, m, n, k); }
#endif

}  // namespace PLIMSOLL_DEVICE

#if defined(PLIMSOLL_WARP_GROUPS)
#include "calibrate/kernels/device/gemm_warp_group.hpp"
#endif

// Arithmetic alone: every wave keeps its operands and several independent accumulators in registers and issues nothing but the
// instruction that is measured. Block 0 writes what its first wave computed, so that the loop has an answer to check.
#pragma once

#include "calibrate/kernels/device/tile.hpp"

namespace PLIMSOLL_DEVICE {

constexpr int kVectorChains = 8;

template <class T>
PLIMSOLL_FUNCTION void vector_rate(T* out, T factor, T summand, int iterations) {
  typedef T Pair __attribute__((vector_size(2 * sizeof(T))));  // AMD has packed fp32 arithmetic
  Pair chain[kVectorChains];
#pragma unroll
  for (int j = 0; j < kVectorChains; ++j) {
    chain[j] = Pair{static_cast<T>(thread_index() + j), static_cast<T>(thread_index() - j)};
  }
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int j = 0; j < kVectorChains; ++j) chain[j] = chain[j] * factor + summand;
  }
  Pair sum{};
#pragma unroll
  for (int j = 0; j < kVectorChains; ++j) sum += chain[j];
  out[grid_thread()] = sum[0] + sum[1];
}

PLIMSOLL_KERNEL(vector_rate_fp32)(float* out, int iterations) { vector_rate<float>(out, 0.99f, 0.01f, iterations); }
PLIMSOLL_KERNEL(vector_rate_fp64)(double* out, int iterations) { vector_rate<double>(out, 0.99, 0.01, iterations); }

constexpr int kMatrixChains = 4;      // independent accumulators of a wave: enough to cover an instruction's latency
constexpr int kMatrixRowBytes = 128;  // of k that one iteration takes

template <class T>
PLIMSOLL_FUNCTION void matrix_rate(const u32x4* a, const u32x4* b, typename AccumulatorOf<T>::Type* out, int iterations) {
  using Tiles = Tile<T>;
  constexpr int kSteps = kMatrixRowBytes / Tiles::kStepBytes, kStepChunks = Tiles::kStepBytes / 16, kRowChunks = kMatrixRowBytes / 16;
  Tiles accumulator[kMatrixChains];
  typename Tiles::Fragment left[kSteps], right[kMatrixChains][kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    left[step] = Tiles::Fragment::load([&](int row, int chunk) { return a + row * kRowChunks + step * kStepChunks + chunk; });
#pragma unroll
    for (int j = 0; j < kMatrixChains; ++j) {
      right[j][step] =
          Tiles::Fragment::load([&](int row, int chunk) { return b + (16 * j + row) * kRowChunks + step * kStepChunks + chunk; });
    }
  }
#pragma unroll
  for (int j = 0; j < kMatrixChains; ++j) clear(accumulator[j]);
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int j = 0; j < kMatrixChains; ++j) multiply_add(accumulator[j], left[step], right[j][step]);
    }
  }
  if (block_index() != 0 || wave_index() != 0) return;
#pragma unroll
  for (int j = 0; j < kMatrixChains; ++j) {
#pragma unroll
    for (int i = 0; i < Tiles::kValues; ++i) out[(16 * j + Tiles::row(i)) * 16 + Tiles::column(i)] = accumulator[j].value[i];
  }
}

PLIMSOLL_KERNEL(matrix_rate_bf16)(const u32x4* a, const u32x4* b, float* out, int iterations) { matrix_rate<bf16>(a, b, out, iterations); }
PLIMSOLL_KERNEL(matrix_rate_fp16)(const u32x4* a, const u32x4* b, float* out, int iterations) { matrix_rate<fp16>(a, b, out, iterations); }
PLIMSOLL_KERNEL(matrix_rate_fp64)(const u32x4* a, const u32x4* b, double* out, int iterations) {
  matrix_rate<double>(a, b, out, iterations);
}
#if PLIMSOLL_FP8
PLIMSOLL_KERNEL(matrix_rate_fp8)(const u32x4* a, const u32x4* b, float* out, int iterations) { matrix_rate<fp8>(a, b, out, iterations); }
#endif
#if defined(PLIMSOLL_NVIDIA)
PLIMSOLL_KERNEL(matrix_rate_tf32)(const u32x4* a, const u32x4* b, float* out, int iterations) { matrix_rate<tf32>(a, b, out, iterations); }
#else
PLIMSOLL_KERNEL(matrix_rate_fp32)(const u32x4* a, const u32x4* b, float* out, int iterations) { matrix_rate<float>(a, b, out, iterations); }
#endif

}  // namespace PLIMSOLL_DEVICE

#if defined(PLIMSOLL_AMD)
#include "calibrate/kernels/device/rates_32x32.hpp"
#elif defined(PLIMSOLL_WARP_GROUPS)
#include "calibrate/kernels/device/rates_warp_group.hpp"
#endif

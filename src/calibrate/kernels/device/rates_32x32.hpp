// The same rates with AMD's 32 x 32 instructions: fewer instructions for the same work, at more power.
#pragma once

#include "calibrate/kernels/device/tile.hpp"

namespace PLIMSOLL_DEVICE {

template <class T>
struct WideStep {  // lane l holds row l % 32; two groups of lanes hold the 16-byte chunks of a step
  static constexpr int kChunks = 1;
};
#if PLIMSOLL_GFX == 950
template <>
struct WideStep<fp8> {
  static constexpr int kChunks = 2;
};
#endif

template <int kChunks>
struct WideFragment {
  u32x4 chunk[kChunks];
};

#if PLIMSOLL_GFX < 950
PLIMSOLL_FUNCTION void multiply_add_wide(f32x16& c, WideFragment<1> a, WideFragment<1> b, bf16*) {
  c = mfma_32x32x8_bf16(low(a.chunk[0]), low(b.chunk[0]), c);
  c = mfma_32x32x8_bf16(high(a.chunk[0]), high(b.chunk[0]), c);
}
PLIMSOLL_FUNCTION void multiply_add_wide(f32x16& c, WideFragment<1> a, WideFragment<1> b, fp16*) {
  c = mfma_32x32x8_f16(low(a.chunk[0]), low(b.chunk[0]), c);
  c = mfma_32x32x8_f16(high(a.chunk[0]), high(b.chunk[0]), c);
}
#if PLIMSOLL_FP8
PLIMSOLL_FUNCTION void multiply_add_wide(f32x16& c, WideFragment<1> a, WideFragment<1> b, fp8*) {
  c = mfma_32x32x16_fp8(low(a.chunk[0]), low(b.chunk[0]), c);
  c = mfma_32x32x16_fp8(high(a.chunk[0]), high(b.chunk[0]), c);
}
#endif
#else
PLIMSOLL_FUNCTION void multiply_add_wide(f32x16& c, WideFragment<1> a, WideFragment<1> b, bf16*) {
  c = mfma_32x32x16_bf16(a.chunk[0], b.chunk[0], c);
}
PLIMSOLL_FUNCTION void multiply_add_wide(f32x16& c, WideFragment<1> a, WideFragment<1> b, fp16*) {
  c = mfma_32x32x16_f16(a.chunk[0], b.chunk[0], c);
}
PLIMSOLL_FUNCTION void multiply_add_wide(f32x16& c, const WideFragment<2>& a, const WideFragment<2>& b, fp8*) {
  c = mfma_32x32x64_fp8(joined(a.chunk[0], a.chunk[1]), joined(b.chunk[0], b.chunk[1]), c);
}
#endif
PLIMSOLL_FUNCTION void multiply_add_wide(f32x16& c, WideFragment<1> a, WideFragment<1> b, float*) {
  const f32x4 x = __builtin_bit_cast(f32x4, a.chunk[0]), y = __builtin_bit_cast(f32x4, b.chunk[0]);
#pragma unroll
  for (int i = 0; i < 4; ++i) c = mfma_32x32x2_f32(x[i], y[i], c);
}

constexpr int kWideChains = 2;

template <class T>
PLIMSOLL_FUNCTION void matrix_rate_wide(const u32x4* a, const u32x4* b, float* out, int iterations) {
  constexpr int kChunks = WideStep<T>::kChunks, kRowChunks = 8, kSteps = kRowChunks / (2 * kChunks);
  WideFragment<kChunks> left[kSteps], right[kWideChains][kSteps];
  const int row = lane_index() % 32, group = lane_index() / 32;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int chunk = (2 * step + group) * kChunks + i;
      left[step].chunk[i] = a[row * kRowChunks + chunk];
#pragma unroll
      for (int j = 0; j < kWideChains; ++j) right[j][step].chunk[i] = b[(32 * j + row) * kRowChunks + chunk];
    }
  }
  f32x16 accumulator[kWideChains] = {};
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int j = 0; j < kWideChains; ++j) multiply_add_wide(accumulator[j], left[step], right[j][step], static_cast<T*>(nullptr));
    }
  }
  if (block_index() != 0 || wave_index() != 0) return;
#pragma unroll
  for (int j = 0; j < kWideChains; ++j) {
#pragma unroll
    for (int i = 0; i < 16; ++i) out[(32 * j + 8 * (i / 4) + 4 * group + i % 4) * 32 + row] = accumulator[j][i];
  }
}

PLIMSOLL_KERNEL(matrix_rate_bf16_32x32)(const u32x4* a, const u32x4* b, float* out, int iterations) {
  matrix_rate_wide<bf16>(a, b, out, iterations);
}
PLIMSOLL_KERNEL(matrix_rate_fp16_32x32)(const u32x4* a, const u32x4* b, float* out, int iterations) {
  matrix_rate_wide<fp16>(a, b, out, iterations);
}
PLIMSOLL_KERNEL(matrix_rate_fp32_32x32)(const u32x4* a, const u32x4* b, float* out, int iterations) {
  matrix_rate_wide<float>(a, b, out, iterations);
}
#if PLIMSOLL_FP8
PLIMSOLL_KERNEL(matrix_rate_fp8_32x32)(const u32x4* a, const u32x4* b, float* out, int iterations) {
  matrix_rate_wide<fp8>(a, b, out, iterations);
}
#endif

}  // namespace PLIMSOLL_DEVICE

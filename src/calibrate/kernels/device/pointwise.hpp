// Element by element: SwiGLU, addition, casts, Adam; and the transpose, which is a copy by way of shared memory.
#pragma once

#include "calibrate/kernels/device/target.hpp"

namespace PLIMSOLL_DEVICE {

PLIMSOLL_KERNEL(swiglu_bf16)(const u16x8* gate, const u16x8* up, u16x8* y, u64 count) {
  for (u64 i = grid_thread(); i < count / 8; i += grid_threads()) {
    const u16x8 g = gate[i], u = up[i];
    u16x8 result;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float x = bf16_lane(g, e);
      result[e] = to_bf16(x * inverse(1.0f + exp_of(-x)) * bf16_lane(u, e)).bits;
    }
    y[i] = result;
  }
}

PLIMSOLL_KERNEL(add_bf16)(const u16x8* a, const u16x8* b, u16x8* y, u64 count) {
  for (u64 i = grid_thread(); i < count / 8; i += grid_threads()) {
    const u16x8 x = a[i], z = b[i];
    u16x8 result;
#pragma unroll
    for (int e = 0; e < 8; ++e) result[e] = to_bf16(bf16_lane(x, e) + bf16_lane(z, e)).bits;
    y[i] = result;
  }
}

PLIMSOLL_KERNEL(cast_fp32_bf16)(const f32x4* x, u16x4* y, u64 count) {
  for (u64 i = grid_thread(); i < count / 4; i += grid_threads()) {
    const f32x4 v = x[i];
    u16x4 result;
#pragma unroll
    for (int e = 0; e < 4; ++e) result[e] = to_bf16(v[e]).bits;
    y[i] = result;
  }
}

PLIMSOLL_KERNEL(cast_bf16_fp32)(const u16x4* x, f32x4* y, u64 count) {
  for (u64 i = grid_thread(); i < count / 4; i += grid_threads()) {
    const u16x4 v = x[i];
    f32x4 result;
#pragma unroll
    for (int e = 0; e < 4; ++e) result[e] = to_float(bf16{v[e]});
    y[i] = result;
  }
}

// AdamW; the bias corrections 1 / (1 − βᵗ) are computed once, on the host.
struct AdamSettings {
  float rate, beta1, beta2, epsilon, decay, correction1, correction2;
};

PLIMSOLL_FUNCTION void adam_step(f32x4 gradient, f32x4& p, f32x4& m, f32x4& v, const AdamSettings& s) {
  m = s.beta1 * m + (1 - s.beta1) * gradient;
  v = s.beta2 * v + (1 - s.beta2) * gradient * gradient;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float denominator = root(v[e] * s.correction2) + s.epsilon;
    p[e] -= s.rate * (m[e] * s.correction1 * inverse(denominator) + s.decay * p[e]);
  }
}

// All in fp32: 28 bytes per parameter.
PLIMSOLL_KERNEL(adam_fp32)
(const f32x4* gradient, f32x4* p, f32x4* m, f32x4* v, u64 count, float rate, float beta1, float beta2, float epsilon, float decay,
 float correction1, float correction2) {
  const AdamSettings settings{rate, beta1, beta2, epsilon, decay, correction1, correction2};
  for (u64 i = grid_thread(); i < count / 4; i += grid_threads()) {
    f32x4 pi = p[i], mi = m[i], vi = v[i];
    adam_step(gradient[i], pi, mi, vi, settings);
    p[i] = pi;
    m[i] = mi;
    v[i] = vi;
  }
}

// Gradient and working copy in bf16, states in fp32: 28 bytes per parameter.
PLIMSOLL_KERNEL(adam_mixed)
(const u16x4* gradient, f32x4* p, f32x4* m, f32x4* v, u16x4* copy, u64 count, float rate, float beta1, float beta2, float epsilon,
 float decay, float correction1, float correction2) {
  const AdamSettings settings{rate, beta1, beta2, epsilon, decay, correction1, correction2};
  for (u64 i = grid_thread(); i < count / 4; i += grid_threads()) {
    const u16x4 g = gradient[i];
    f32x4 pi = p[i], mi = m[i], vi = v[i];
    adam_step(f32x4{to_float(bf16{g[0]}), to_float(bf16{g[1]}), to_float(bf16{g[2]}), to_float(bf16{g[3]})}, pi, mi, vi, settings);
    p[i] = pi;
    m[i] = mi;
    v[i] = vi;
    copy[i] = u16x4{to_bf16(pi[0]).bits, to_bf16(pi[1]).bits, to_bf16(pi[2]).bits, to_bf16(pi[3]).bits};
  }
}

// y = xᵀ in tiles of 64 x 64, both sides in 16-byte accesses; a row in shared memory is one bank longer, so that columns are read apart.
PLIMSOLL_KERNEL(transpose_bf16)(const u16x8* x, u16x8* y, int rows, int columns) {
  constexpr int kSide = 64, kPitch = kSide + 2, kVectors = kSide / 8;
  PLIMSOLL_SHARED_ARRAY(u16, tile, kSide * kPitch);
  const int column_tiles = (columns + kSide - 1) / kSide;
  const int row0 = block_index() / column_tiles * kSide, column0 = block_index() % column_tiles * kSide;
#pragma unroll
  for (int i = 0; i < kSide * kVectors / kThreads; ++i) {
    const int at = thread_index() + i * kThreads, row = at / kVectors, column = at % kVectors * 8;
    if (row0 + row >= rows || column0 + column >= columns) continue;
    const u16x8 v = x[(static_cast<u64>(row0 + row) * static_cast<u64>(columns) + static_cast<u64>(column0 + column)) / 8];
#pragma unroll
    for (int e = 0; e < 8; ++e) tile[row * kPitch + column + e] = v[e];
  }
  barrier();
#pragma unroll
  for (int i = 0; i < kSide * kVectors / kThreads; ++i) {
    const int at = thread_index() + i * kThreads, column = at / kVectors, row = at % kVectors * 8;
    if (row0 + row >= rows || column0 + column >= columns) continue;
    u16x8 result;
#pragma unroll
    for (int e = 0; e < 8; ++e) result[e] = tile[(row + e) * kPitch + column];
    y[(static_cast<u64>(column0 + column) * static_cast<u64>(rows) + static_cast<u64>(row0 + row)) / 8] = result;
  }
}

}  // namespace PLIMSOLL_DEVICE

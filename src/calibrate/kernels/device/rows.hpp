// One block per piece: sums. One block per row: RMSNorm, softmax, cross-entropy with its gradient; each row is read twice, the second time
// from a cache.
#pragma once

#include "calibrate/kernels/device/target.hpp"

namespace PLIMSOLL_DEVICE {

template <class Operation>
PLIMSOLL_FUNCTION float block_reduce(float value, float* shared) {
  value = wave_reduce<Operation>(value);
  if (lane_index() == 0) shared[wave_index()] = value;
  barrier();
  value = shared[0];
#pragma unroll
  for (int wave = 1; wave < kWaves; ++wave) value = Operation::join(value, shared[wave]);
  barrier();
  return value;
}

// Sums of the pieces of 16 KiB of a buffer, one block each; of more pieces than `results` some are lost.
PLIMSOLL_KERNEL(piece_sums)(const f32x4* source, float* sums, u64 count, u64 results) {
  PLIMSOLL_SHARED_ARRAY(float, partial, kWaves);
  constexpr int kVectors = 4;
  const u64 first = static_cast<u64>(block_index()) * static_cast<u64>(kVectors * kThreads) + static_cast<u64>(thread_index());
  f32x4 sum = {};
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const u64 at = first + static_cast<u64>(j * kThreads);
    if (at < count / 4) sum += source[at];
  }
  const float total = block_reduce<Sum>(sum[0] + sum[1] + (sum[2] + sum[3]), partial);
  if (thread_index() == 0) sums[static_cast<u64>(block_index()) % results] = total;
}

PLIMSOLL_FUNCTION u64 row_start(int columns) { return static_cast<u64>(block_index()) * static_cast<u64>(columns); }

PLIMSOLL_KERNEL(rmsnorm_bf16)(const bf16* x, const bf16* weight, bf16* y, int columns, float epsilon) {
  PLIMSOLL_SHARED_ARRAY(float, partial, kWaves);
  const u16x8* in = reinterpret_cast<const u16x8*>(x + row_start(columns));
  const u16x8* scale = reinterpret_cast<const u16x8*>(weight);
  u16x8* out = reinterpret_cast<u16x8*>(y + row_start(columns));
  float squares = 0;
  for (int i = thread_index(); i < columns / 8; i += kThreads) {
    const u16x8 v = in[i];
#pragma unroll
    for (int e = 0; e < 8; ++e) squares += bf16_lane(v, e) * bf16_lane(v, e);
  }
  const float norm = inverse_root(block_reduce<Sum>(squares, partial) / static_cast<float>(columns) + epsilon);
  for (int i = thread_index(); i < columns / 8; i += kThreads) {
    const u16x8 v = in[i], w = scale[i];
    u16x8 result;
#pragma unroll
    for (int e = 0; e < 8; ++e) result[e] = to_bf16(bf16_lane(v, e) * norm * bf16_lane(w, e)).bits;
    out[i] = result;
  }
}

// Maximum of a row and the sum of exp(x − maximum), each thread going once through its elements.
struct RowSum {
  float maximum, sum;
};

PLIMSOLL_FUNCTION void include_value(RowSum& state, float x) {
  const float maximum = Maximum::join(state.maximum, x);
  state.sum = state.sum * exp_of(state.maximum - maximum) + exp_of(x - maximum);
  state.maximum = maximum;
}

PLIMSOLL_FUNCTION RowSum join_over_block(RowSum own, float* shared) {
  const float maximum = block_reduce<Maximum>(own.maximum, shared);
  return {maximum, block_reduce<Sum>(own.sum * exp_of(own.maximum - maximum), shared)};
}

constexpr float kLowest = -3.0e38f;

PLIMSOLL_KERNEL(softmax_fp32)(const float* x, float* y, int columns) {
  PLIMSOLL_SHARED_ARRAY(float, partial, kWaves);
  const f32x4* in = reinterpret_cast<const f32x4*>(x + row_start(columns));
  f32x4* out = reinterpret_cast<f32x4*>(y + row_start(columns));
  RowSum own{kLowest, 0};
  for (int i = thread_index(); i < columns / 4; i += kThreads) {
    const f32x4 v = in[i];
#pragma unroll
    for (int e = 0; e < 4; ++e) include_value(own, v[e]);
  }
  const RowSum row = join_over_block(own, partial);
  const float scale = inverse(row.sum);
  for (int i = thread_index(); i < columns / 4; i += kThreads) {
    const f32x4 v = in[i];
    f32x4 result;
#pragma unroll
    for (int e = 0; e < 4; ++e) result[e] = exp_of(v[e] - row.maximum) * scale;
    out[i] = result;
  }
}

// loss = log Σ exp(x) − x[target]; gradient = (softmax(x) − one-hot(target)) · scale, scale = 1 / rows.
PLIMSOLL_KERNEL(cross_entropy_bf16)(const bf16* logits, const int* target, float* loss, bf16* gradient, int columns, float scale) {
  PLIMSOLL_SHARED_ARRAY(float, partial, kWaves);
  const u16x8* in = reinterpret_cast<const u16x8*>(logits + row_start(columns));
  u16x8* out = reinterpret_cast<u16x8*>(gradient + row_start(columns));
  RowSum own{kLowest, 0};
  for (int i = thread_index(); i < columns / 8; i += kThreads) {
    const u16x8 v = in[i];
#pragma unroll
    for (int e = 0; e < 8; ++e) include_value(own, bf16_lane(v, e));
  }
  const RowSum row = join_over_block(own, partial);
  const int wanted = target[block_index()];
  if (thread_index() == 0) {
    loss[block_index()] = row.maximum + log2_of(row.sum) * kLn2 - to_float(logits[row_start(columns) + static_cast<u64>(wanted)]);
  }
  const float factor = scale * inverse(row.sum);
  for (int i = thread_index(); i < columns / 8; i += kThreads) {
    const u16x8 v = in[i];
    u16x8 result;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float probability = exp_of(bf16_lane(v, e) - row.maximum) * factor;
      result[e] = to_bf16(8 * i + e == wanted ? probability - scale : probability).bits;
    }
    out[i] = result;
  }
}

}  // namespace PLIMSOLL_DEVICE

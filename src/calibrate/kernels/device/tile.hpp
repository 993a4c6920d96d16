// A wave's 16 x 16 tile of D += A·Bᵀ, where A and B are given as rows that are contiguous along k. On every machine a lane reads 16
// contiguous bytes of a row: which k values fall together in one instruction is the same for A and B, and that is all that a product
// needs. So one step takes 64 bytes of every row (gfx950's scaled fp8: 128), in 16-byte accesses.
#pragma once

#include "calibrate/kernels/device/instructions.hpp"

namespace PLIMSOLL_DEVICE {

struct tf32;  // fp32 in memory, multiplied with 10 bits of mantissa

template <class T>
struct ElementOf {
  using Type = T;
};
template <>
struct ElementOf<tf32> {
  using Type = float;
};

template <class T>
struct AccumulatorOf {
  using Type = float;
};
template <>
struct AccumulatorOf<double> {
  using Type = double;
};

#if defined(PLIMSOLL_AMD)

// Lane l holds row l % 16; the lanes' four groups hold the four 16-byte chunks of a step.
template <int kChunks>
struct RowFragment {
  u32x4 chunk[kChunks];

  // at(row, chunk): where that chunk of that row lies.
  template <class Address>
  PLIMSOLL_FUNCTION RowFragment load(Address at) {
    RowFragment fragment;
    const int lane = lane_index();
#pragma unroll
    for (int i = 0; i < kChunks; ++i) fragment.chunk[i] = *at(lane % 16, lane / 16 * kChunks + i);
    return fragment;
  }
};

template <class T>
struct TileFragments {
  using Fragment = RowFragment<1>;
  static constexpr int kStepBytes = 64;
};
#if PLIMSOLL_GFX == 950
template <>
struct TileFragments<fp8> {
  using Fragment = RowFragment<2>;
  static constexpr int kStepBytes = 128;
};
#endif

PLIMSOLL_FUNCTION u32x2 low(u32x4 v) { return u32x2{v[0], v[1]}; }
PLIMSOLL_FUNCTION u32x2 high(u32x4 v) { return u32x2{v[2], v[3]}; }
PLIMSOLL_FUNCTION u32x8 joined(u32x4 a, u32x4 b) { return u32x8{a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]}; }

#if PLIMSOLL_GFX < 950
PLIMSOLL_FUNCTION void multiply_add(f32x4& c, RowFragment<1> a, RowFragment<1> b, bf16*) {
  c = mfma_16x16x16_bf16(low(a.chunk[0]), low(b.chunk[0]), c);
  c = mfma_16x16x16_bf16(high(a.chunk[0]), high(b.chunk[0]), c);
}
PLIMSOLL_FUNCTION void multiply_add(f32x4& c, RowFragment<1> a, RowFragment<1> b, fp16*) {
  c = mfma_16x16x16_f16(low(a.chunk[0]), low(b.chunk[0]), c);
  c = mfma_16x16x16_f16(high(a.chunk[0]), high(b.chunk[0]), c);
}
#if PLIMSOLL_FP8
PLIMSOLL_FUNCTION void multiply_add(f32x4& c, RowFragment<1> a, RowFragment<1> b, fp8*) {
  c = mfma_16x16x32_fp8(low(a.chunk[0]), low(b.chunk[0]), c);
  c = mfma_16x16x32_fp8(high(a.chunk[0]), high(b.chunk[0]), c);
}
#endif
#else
PLIMSOLL_FUNCTION void multiply_add(f32x4& c, RowFragment<1> a, RowFragment<1> b, bf16*) {
  c = mfma_16x16x32_bf16(a.chunk[0], b.chunk[0], c);
}
PLIMSOLL_FUNCTION void multiply_add(f32x4& c, RowFragment<1> a, RowFragment<1> b, fp16*) {
  c = mfma_16x16x32_f16(a.chunk[0], b.chunk[0], c);
}
PLIMSOLL_FUNCTION void multiply_add(f32x4& c, RowFragment<2> a, RowFragment<2> b, fp8*) {
  c = mfma_16x16x128_fp8(joined(a.chunk[0], a.chunk[1]), joined(b.chunk[0], b.chunk[1]), c);
}
#endif
PLIMSOLL_FUNCTION void multiply_add(f32x4& c, RowFragment<1> a, RowFragment<1> b, float*) {
  const f32x4 x = __builtin_bit_cast(f32x4, a.chunk[0]), y = __builtin_bit_cast(f32x4, b.chunk[0]);
#pragma unroll
  for (int i = 0; i < 4; ++i) c = mfma_16x16x4_f32(x[i], y[i], c);
}
PLIMSOLL_FUNCTION void multiply_add(f64x4& c, RowFragment<1> a, RowFragment<1> b, double*) {
  c = mfma_16x16x4_f64(__builtin_bit_cast(double, low(a.chunk[0])), __builtin_bit_cast(double, low(b.chunk[0])), c);
  c = mfma_16x16x4_f64(__builtin_bit_cast(double, high(a.chunk[0])), __builtin_bit_cast(double, high(b.chunk[0])), c);
}

template <class T>
struct Tile : TileFragments<T> {
  using Fragment = typename TileFragments<T>::Fragment;
  using Value = typename AccumulatorOf<T>::Type;
  typedef Value Values __attribute__((vector_size(4 * sizeof(Value))));
  static constexpr int kValues = 4;     // of one lane
  static constexpr int kRowLanes = 16;  // neighbouring lanes that hold one row
  Values value;

  PLIMSOLL_FUNCTION int row(int i) { return sizeof(Value) == 8 ? 4 * i + lane_index() / 16 : 4 * (lane_index() / 16) + i; }
  PLIMSOLL_FUNCTION int column(int) { return lane_index() % 16; }
  // Values i that lie in one row, for i = 0 … kLaneRows - 1.
  static constexpr int kLaneRows = 4;
  static constexpr int row_of_value(int i) { return i; }
};

template <class T>
PLIMSOLL_FUNCTION void clear(Tile<T>& tile) {
  tile.value = typename Tile<T>::Values{};
}
template <class T>
PLIMSOLL_FUNCTION void multiply_add(Tile<T>& tile, const typename Tile<T>::Fragment& a, const typename Tile<T>::Fragment& b) {
  multiply_add(tile.value, a, b, static_cast<T*>(nullptr));
}

#else  // NVIDIA

// Lane 4g + t holds chunk t of the rows g and g + 8.
struct RowFragment {
  u32x4 row[2];

  template <class Address>
  PLIMSOLL_FUNCTION RowFragment load(Address at) {
    const int lane = lane_index();
    return {{*at(lane / 4, lane % 4), *at(lane / 4 + 8, lane % 4)}};
  }
};

PLIMSOLL_FUNCTION void mma_m16n8(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, bf16*) {
  mma_m16n8k16_bf16(d, a0, a1, a2, a3, b0, b1);
}
PLIMSOLL_FUNCTION void mma_m16n8(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, fp16*) {
  mma_m16n8k16_f16(d, a0, a1, a2, a3, b0, b1);
}
PLIMSOLL_FUNCTION void mma_m16n8(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, tf32*) {
  mma_m16n8k8_tf32(d, a0, a1, a2, a3, b0, b1);
}
#if PLIMSOLL_FP8
PLIMSOLL_FUNCTION void mma_m16n8(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, fp8*) {
  mma_m16n8k32_e4m3(d, a0, a1, a2, a3, b0, b1);
}
#endif

template <class T>
struct Tile {
  using Fragment = RowFragment;
  using Value = typename AccumulatorOf<T>::Type;
  static constexpr int kStepBytes = 64;
  static constexpr int kValues = 8;
  static constexpr int kRowLanes = 4;
  static constexpr int kLaneRows = 2;
  Value value[kValues];

  // fp32: two m16n8 tiles side by side of four values each; fp64: four m8n8 tiles of two values.
  static constexpr int row_of_value(int i) { return sizeof(Value) == 8 ? i / 4 : i / 2 % 2; }
  PLIMSOLL_FUNCTION int row(int i) { return lane_index() / 4 + 8 * row_of_value(i); }
  PLIMSOLL_FUNCTION int column(int i) {
    const int half = sizeof(Value) == 8 ? i / 2 % 2 : i / 4;
    return 8 * half + 2 * (lane_index() % 4) + i % 2;
  }
};

template <class T>
PLIMSOLL_FUNCTION void clear(Tile<T>& tile) {
#pragma unroll
  for (int i = 0; i < Tile<T>::kValues; ++i) tile.value[i] = 0;
}

PLIMSOLL_FUNCTION double double_of(u32x4 v, int i) { return __builtin_bit_cast(double, u32x2{v[2 * i], v[2 * i + 1]}); }

template <class T>
PLIMSOLL_FUNCTION void multiply_add(Tile<T>& tile, const RowFragment& a, const RowFragment& b) {
  if constexpr (sizeof(typename Tile<T>::Value) == 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int rows = i / 4, columns = i / 2 % 2, k = i % 2;
      mma_m8n8k4_f64(tile.value + 4 * rows + 2 * columns, double_of(a.row[rows], k), double_of(b.row[columns], k));
    }
  } else {
    const u32x4 a0 = a.row[0], a1 = a.row[1];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32x4 bh = b.row[half];
      float* d = tile.value + 4 * half;
      mma_m16n8(d, a0[0], a1[0], a0[1], a1[1], bh[0], bh[1], static_cast<T*>(nullptr));
      mma_m16n8(d, a0[2], a1[2], a0[3], a1[3], bh[2], bh[3], static_cast<T*>(nullptr));
    }
  }
}
#endif

// Joins one value per row of the tile over the lanes that hold that row.
template <class Operation, int kRowLanes>
PLIMSOLL_FUNCTION float row_reduce(float value) {
  if constexpr (kRowLanes == 16) {
    value = Operation::join(value, lane_xor<8>(value));
    value = Operation::join(value, lane_xor<4>(value));
  }
  value = Operation::join(value, lane_xor<2>(value));
  return Operation::join(value, lane_xor<1>(value));
}

}  // namespace PLIMSOLL_DEVICE

// Hopper's warp-group product: operands in shared memory, read by every lane for its own values of D; included by
// device/rates_warp_group.hpp, in the processor's namespace.
#pragma once

using Operand = const std::byte*;
inline Operand shared_operand(const u32x4* shared) { return reinterpret_cast<Operand>(shared); }
inline Operand further_along_k(Operand operand, int bytes) { return operand + bytes; }
inline void group_sees_shared_memory() {}
inline void group_begin() {}
inline void group_commit() {}
template <int>
void group_wait() {}

// Row and 16-byte chunk of k of an operand.
inline const std::byte* chunk_at(Operand operand, int row, int chunk) {
  return operand + row / 8 * kEightRowsBytes + chunk * kChunkBytes + row % 8 * 16;
}

template <DType type>
float read_factor(const std::byte* chunk, int index) {
  const float value = element_of<type>(chunk, index);
  return type == DType::fp32 ? float_of_bits(tf32_bits(bits_of_float(value))) : value;
}

// m64n256: warp w of the group holds of D the rows 16w + g and 16w + g + 8; within eight columns as in m16n8.
template <DType type>
void group_product(float (&d)[kGroupValues], Operand a, Operand b) {
  constexpr int kPer = static_cast<int>(16 / size_of(type));
  const int warp = wave_index() % 4, g = lane_index() / 4, t = lane_index() % 4;
  float left[2][2 * kPer];
  for (int k = 0; k < 2 * kPer; ++k) {
    for (int half = 0; half < 2; ++half) left[half][k] = read_factor<type>(chunk_at(a, 16 * warp + g + 8 * half, k / kPer), k % kPer);
  }
  for (int pair = 0; pair < kGroupRowsB / 4; ++pair) {
    const int column = 8 * (pair / 2) + 2 * t + pair % 2, value = 4 * (pair / 2) + pair % 2;
    for (int k = 0; k < 2 * kPer; ++k) {
      const float right = read_factor<type>(chunk_at(b, column, k / kPer), k % kPer);
      d[value] += left[0][k] * right;
      d[value + 2] += left[1][k] * right;
    }
  }
}

inline void multiply_add_group(float (&d)[kGroupValues], Operand a, Operand b, bf16*) { group_product<DType::bf16>(d, a, b); }
inline void multiply_add_group(float (&d)[kGroupValues], Operand a, Operand b, fp16*) { group_product<DType::fp16>(d, a, b); }
inline void multiply_add_group(float (&d)[kGroupValues], Operand a, Operand b, tf32*) { group_product<DType::fp32>(d, a, b); }
inline void multiply_add_group(float (&d)[kGroupValues], Operand a, Operand b, fp8*) { group_product<DType::fp8>(d, a, b); }

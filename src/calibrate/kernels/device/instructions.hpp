// One function per matrix instruction, D = A·B + C by all lanes of a wave. The emulator has functions of the same names that exchange the
// lanes' registers as the hardware does.
#pragma once

#include "calibrate/kernels/device/target.hpp"

namespace PLIMSOLL_DEVICE {

#if defined(PLIMSOLL_EMULATE)
#include "calibrate/kernels/emulator/matrix_instructions.hpp"
#else

#if defined(PLIMSOLL_AMD)
typedef short s16x4 __attribute__((ext_vector_type(4)));
typedef _Float16 h16x4 __attribute__((ext_vector_type(4)));

PLIMSOLL_FUNCTION f32x4 mfma_16x16x4_f32(float a, float b, f32x4 c) { return __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, c, 0, 0, 0); }
PLIMSOLL_FUNCTION f32x16 mfma_32x32x2_f32(float a, float b, f32x16 c) { return __builtin_amdgcn_mfma_f32_32x32x2f32(a, b, c, 0, 0, 0); }
PLIMSOLL_FUNCTION f64x4 mfma_16x16x4_f64(double a, double b, f64x4 c) { return __builtin_amdgcn_mfma_f64_16x16x4f64(a, b, c, 0, 0, 0); }

#if PLIMSOLL_GFX < 950
PLIMSOLL_FUNCTION f32x4 mfma_16x16x16_bf16(u32x2 a, u32x2 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(s16x4, a), __builtin_bit_cast(s16x4, b), c, 0, 0, 0);
}
PLIMSOLL_FUNCTION f32x4 mfma_16x16x16_f16(u32x2 a, u32x2 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(h16x4, a), __builtin_bit_cast(h16x4, b), c, 0, 0, 0);
}
PLIMSOLL_FUNCTION f32x16 mfma_32x32x8_bf16(u32x2 a, u32x2 b, f32x16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(s16x4, a), __builtin_bit_cast(s16x4, b), c, 0, 0, 0);
}
PLIMSOLL_FUNCTION f32x16 mfma_32x32x8_f16(u32x2 a, u32x2 b, f32x16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(h16x4, a), __builtin_bit_cast(h16x4, b), c, 0, 0, 0);
}
#if PLIMSOLL_FP8
PLIMSOLL_FUNCTION f32x4 mfma_16x16x32_fp8(u32x2 a, u32x2 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(__builtin_bit_cast(long, a), __builtin_bit_cast(long, b), c, 0, 0, 0);
}
PLIMSOLL_FUNCTION f32x16 mfma_32x32x16_fp8(u32x2 a, u32x2 b, f32x16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(__builtin_bit_cast(long, a), __builtin_bit_cast(long, b), c, 0, 0, 0);
}
#endif
#else
typedef __bf16 b16x8 __attribute__((ext_vector_type(8)));
typedef _Float16 h16x8 __attribute__((ext_vector_type(8)));
typedef int s32x8 __attribute__((ext_vector_type(8)));

PLIMSOLL_FUNCTION f32x4 mfma_16x16x32_bf16(u32x4 a, u32x4 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(b16x8, a), __builtin_bit_cast(b16x8, b), c, 0, 0, 0);
}
PLIMSOLL_FUNCTION f32x4 mfma_16x16x32_f16(u32x4 a, u32x4 b, f32x4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(h16x8, a), __builtin_bit_cast(h16x8, b), c, 0, 0, 0);
}
PLIMSOLL_FUNCTION f32x16 mfma_32x32x16_bf16(u32x4 a, u32x4 b, f32x16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(b16x8, a), __builtin_bit_cast(b16x8, b), c, 0, 0, 0);
}
PLIMSOLL_FUNCTION f32x16 mfma_32x32x16_f16(u32x4 a, u32x4 b, f32x16 c) {
  return __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(h16x8, a), __builtin_bit_cast(h16x8, b), c, 0, 0, 0);
}
// The scaled form with both scales one (E8M0: 127): the only one at the full fp8 rate. Formats 0, 0: e4m3.
PLIMSOLL_FUNCTION f32x4 mfma_16x16x128_fp8(u32x8 a, u32x8 b, f32x4 c) {
  return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(__builtin_bit_cast(s32x8, a), __builtin_bit_cast(s32x8, b), c, 0, 0, 0, 127, 0,
                                                          127);
}
PLIMSOLL_FUNCTION f32x16 mfma_32x32x64_fp8(u32x8 a, u32x8 b, f32x16 c) {
  return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(__builtin_bit_cast(s32x8, a), __builtin_bit_cast(s32x8, b), c, 0, 0, 0, 127, 0,
                                                         127);
}
#endif

#else  // NVIDIA

// m16n8: a are rows g and g + 8 at k low, then at k high (g = lane / 4); d rows g and g + 8 at two neighbouring columns.
#define PLIMSOLL_MMA_M16N8(name, instruction)                                                   \
  PLIMSOLL_FUNCTION void name(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {       \
    asm volatile(instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                               \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                       \
  }
PLIMSOLL_MMA_M16N8(mma_m16n8k16_bf16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
PLIMSOLL_MMA_M16N8(mma_m16n8k16_f16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
PLIMSOLL_MMA_M16N8(mma_m16n8k8_tf32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
#if PLIMSOLL_FP8
PLIMSOLL_MMA_M16N8(mma_m16n8k32_e4m3, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
#endif
#undef PLIMSOLL_MMA_M16N8

PLIMSOLL_FUNCTION void mma_m8n8k4_f64(double* d, double a, double b) {
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(d[0]), "+d"(d[1]) : "d"(a), "d"(b));
}
#endif
#endif

}  // namespace PLIMSOLL_DEVICE

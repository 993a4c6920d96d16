// The rates of Hopper's warp-group instructions, with operands that stay in shared memory.
#pragma once

#include "calibrate/kernels/device/warp_group.hpp"

namespace PLIMSOLL_DEVICE {

// Rows of 128 bytes into the layout that the instruction reads.
template <int kRows>
PLIMSOLL_FUNCTION void stage_rows(const u32x4* rows, u32x4* shared) {
#pragma unroll
  for (int i = 0; i < kRows * 8 / kThreads; ++i) {
    const int at = thread_index() + i * kThreads;
    shared[group_place<8>(at / 8, at % 8)] = rows[at];
  }
}

template <class T>
PLIMSOLL_FUNCTION void matrix_rate_group(const u32x4* a, const u32x4* b, float* out, int iterations) {
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_a, kGroupRowsA * 8);
  PLIMSOLL_SHARED_ARRAY(u32x4, shared_b, kGroupRowsB * 8);
  stage_rows<kGroupRowsA>(a, shared_a);
  stage_rows<kGroupRowsB>(b, shared_b);
  group_sees_shared_memory();
  barrier();
  const Operand left = shared_operand<8>(shared_a), right = shared_operand<8>(shared_b);
  GroupAccumulator d;
  clear(d);
  group_begin();
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      multiply_add_group(d, further_along_k(left, step * kInstructionBytes), further_along_k(right, step * kInstructionBytes),
                         static_cast<T*>(nullptr));
    }
    group_commit(d);
    group_wait<1>(d);
  }
  group_wait<0>(d);
  if (block_index() != 0 || thread_index() >= kGroupLanes) return;
#pragma unroll
  for (int i = 0; i < kGroupValues; ++i) out[group_row(i) * kGroupRowsB + group_column(i)] = d.value[i];
}

PLIMSOLL_KERNEL(matrix_rate_bf16_wgmma)(const u32x4* a, const u32x4* b, float* out, int iterations) {
  matrix_rate_group<bf16>(a, b, out, iterations);
}
PLIMSOLL_KERNEL(matrix_rate_fp16_wgmma)(const u32x4* a, const u32x4* b, float* out, int iterations) {
  matrix_rate_group<fp16>(a, b, out, iterations);
}
PLIMSOLL_KERNEL(matrix_rate_tf32_wgmma)(const u32x4* a, const u32x4* b, float* out, int iterations) {
  matrix_rate_group<tf32>(a, b, out, iterations);
}
PLIMSOLL_KERNEL(matrix_rate_fp8_wgmma)(const u32x4* a, const u32x4* b, float* out, int iterations) {
  matrix_rate_group<fp8>(a, b, out, iterations);
}

}  // namespace PLIMSOLL_DEVICE

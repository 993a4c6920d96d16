// Hopper's warp-group instructions, its only way to the full rate: four warps multiply 64 rows of A by 256 rows of B, both in shared
// memory, 32 bytes of k at a time, while the warps go on. Chunks of 16 bytes lie in blocks of eight rows, without swizzle.
#pragma once

#include "calibrate/kernels/device/tile.hpp"

namespace PLIMSOLL_DEVICE {

constexpr int kGroupRowsA = 64, kGroupRowsB = 256, kGroupLanes = 128;
constexpr int kGroupValues = kGroupRowsA * kGroupRowsB / kGroupLanes;
constexpr int kChunkBytes = 128;                    // from one chunk of eight rows to the next along k
constexpr int kInstructionBytes = 2 * kChunkBytes;  // that one instruction takes: 32 bytes of k

#if defined(PLIMSOLL_EMULATE)
#include "calibrate/kernels/emulator/warp_group_instructions.hpp"
#else
struct GroupAccumulator {  // a lane's values of 64 x 256
  float value[kGroupValues];
};
// Address, distance along k, distance along rows, each in units of 16 bytes (PTX ISA, "Matrix Descriptor Format"); no swizzle.
using Operand = u64;
template <int kRowChunks>
PLIMSOLL_FUNCTION Operand shared_operand(const u32x4* shared) {
  const u32 address = static_cast<u32>(reinterpret_cast<u64>((__attribute__((address_space(3))) const u32x4*)shared));
  return static_cast<u64>((address & 0x3FFFF) >> 4) | static_cast<u64>(kChunkBytes >> 4) << 16 |
         static_cast<u64>(kRowChunks * kChunkBytes >> 4) << 32;
}
PLIMSOLL_FUNCTION Operand further_along_k(Operand operand, int bytes) { return operand + static_cast<u64>(bytes >> 4); }

PLIMSOLL_FUNCTION void group_sees_shared_memory() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
PLIMSOLL_FUNCTION void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
PLIMSOLL_FUNCTION void group_commit(GroupAccumulator&) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
PLIMSOLL_FUNCTION void group_wait(GroupAccumulator&) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define PLIMSOLL_EIGHT(m, i) m(i), m(i + 1), m(i + 2), m(i + 3), m(i + 4), m(i + 5), m(i + 6), m(i + 7)
#define PLIMSOLL_SIXTY_FOUR(m, i)                                                                                                  \
  PLIMSOLL_EIGHT(m, i), PLIMSOLL_EIGHT(m, i + 8), PLIMSOLL_EIGHT(m, i + 16), PLIMSOLL_EIGHT(m, i + 24), PLIMSOLL_EIGHT(m, i + 32), \
      PLIMSOLL_EIGHT(m, i + 40), PLIMSOLL_EIGHT(m, i + 48), PLIMSOLL_EIGHT(m, i + 56)
#define PLIMSOLL_INOUT(i) "+f"(d.value[i])
#define PLIMSOLL_GROUP_PRODUCT(type, instruction, immediates)                                                                       \
  PLIMSOLL_FUNCTION void multiply_add_group(GroupAccumulator& d, Operand a, Operand b, type*) {                                     \
    asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, 1, 0;\n" instruction                                           \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
                 "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
                 "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "   \
                 "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "   \
                 "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "   \
                 "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "    \
                 "%128, %129, accumulate, " immediates ";\n}\n"                                                                     \
                 : PLIMSOLL_SIXTY_FOUR(PLIMSOLL_INOUT, 0), PLIMSOLL_SIXTY_FOUR(PLIMSOLL_INOUT, 64)                                  \
                 : "l"(a), "l"(b));                                                                                                 \
  }
PLIMSOLL_GROUP_PRODUCT(bf16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", "1, 1, 0, 0")
PLIMSOLL_GROUP_PRODUCT(fp16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", "1, 1, 0, 0")
PLIMSOLL_GROUP_PRODUCT(tf32, "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32", "1, 1")
PLIMSOLL_GROUP_PRODUCT(fp8, "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3", "1, 1")
#undef PLIMSOLL_GROUP_PRODUCT
#undef PLIMSOLL_INOUT
#undef PLIMSOLL_SIXTY_FOUR
#undef PLIMSOLL_EIGHT
#endif

// Where a row's chunk of 16 bytes lies, of rows of kRowChunks of them; in units of chunks.
template <int kRowChunks>
PLIMSOLL_FUNCTION int group_place(int row, int chunk) {
  return (row / 8 * kRowChunks + chunk) * 8 + row % 8;
}

// Of the 64 x 256 values of a group, those of this lane.
PLIMSOLL_FUNCTION int group_row(int value) { return 16 * (wave_index() % 4) + lane_index() / 4 + 8 * (value / 2 % 2); }
PLIMSOLL_FUNCTION int group_column(int value) { return 8 * (value / 4) + 2 * (lane_index() % 4) + value % 2; }

PLIMSOLL_FUNCTION void clear(GroupAccumulator& d) {
#pragma unroll
  for (int i = 0; i < kGroupValues; ++i) d.value[i] = 0;
}

}  // namespace PLIMSOLL_DEVICE

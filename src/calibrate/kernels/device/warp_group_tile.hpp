// Hopper's warp-group products of bf16 as attention takes them: 64 rows by 64 or 128 columns, operands in swizzled shared memory, A also
// in registers and B also as it is multiplied ("transposed"). And copies into shared memory that go on by themselves.
#pragma once

#include "calibrate/kernels/device/warp_group.hpp"

namespace PLIMSOLL_DEVICE {

constexpr int kPanelChunks = 8;  // 16-byte chunks of a row of a panel: 64 columns of bf16

// A matrix of kRows rows lies in panels of 64 columns, one behind the other; in a row the chunks are exchanged by the row's number, so
// that eight rows of one chunk lie in all banks.
template <int kRows>
PLIMSOLL_FUNCTION int panel_place(int row, int chunk) {
  return (chunk / kPanelChunks * kRows + row) * kPanelChunks + (chunk % kPanelChunks ^ row % 8);
}

template <int kColumns>
struct GroupTile {  // a lane's values of 64 x kColumns
  static constexpr int kValues = kColumns / 2;
  float value[kValues];
};

// Of A: 64 rows by 16 of k, from a GroupTile's eight values.
struct GroupRows {
  u32 r[4];
};

#if defined(PLIMSOLL_EMULATE)
#include "calibrate/kernels/emulator/warp_group_tile_instructions.hpp"
#else
// What a lane has begun and not waited for: copies into shared memory, products. The hardware knows; the emulator keeps it here.
struct Begun {};

PLIMSOLL_FUNCTION u32 pack_bf16(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

PLIMSOLL_FUNCTION u32 shared_address(const u32x4* shared) {
  return static_cast<u32>(reinterpret_cast<u64>((__attribute__((address_space(3))) const u32x4*)shared));
}
// The same, so that what follows from it is computed where it is used: all the operands of a loop take more registers than there are.
using PanelOperand = u64;  // (PTX ISA, "Matrix Descriptor Format")
PLIMSOLL_FUNCTION u64 operand_address(const u32x4* shared) {
  u32 address = shared_address(shared);
  asm volatile("" : "+r"(address));
  return static_cast<u64>(address >> 4);
}
constexpr u64 kSwizzled = static_cast<u64>(1024 >> 4) << 32 | 1ull << 62;  // eight rows of 128 bytes, and that their chunks are exchanged
// Rows that are contiguous along k.
PLIMSOLL_FUNCTION PanelOperand panel_operand(const u32x4* shared) { return operand_address(shared) | 1ull << 16 | kSwizzled; }
// Rows of k, of which kRows lie in a panel.
template <int kRows>
PLIMSOLL_FUNCTION PanelOperand turned_operand(const u32x4* shared) {
  return operand_address(shared) | static_cast<u64>(kRows * 128 >> 4) << 16 | kSwizzled;
}

PLIMSOLL_FUNCTION PanelOperand further(PanelOperand operand, int chunks) { return operand + static_cast<u64>(chunks); }

PLIMSOLL_FUNCTION void copy_ahead(Begun&, u32x4* shared, const u32x4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(from) : "memory");
}
PLIMSOLL_FUNCTION void copies_commit(Begun&) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
PLIMSOLL_FUNCTION void copies_wait(Begun&) {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

PLIMSOLL_FUNCTION void group_commit(Begun&) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// ptxas moves a wait up to what is waited for. A store that never happens keeps the arithmetic of both values before it.
PLIMSOLL_FUNCTION void finish_before_what_follows(const float (&positive)[2], u32x4* shared) {
  asm volatile("{\n.reg .pred never;\nsetp.lt.f32 never, %1, 0f00000000;\n@never st.volatile.shared.f32 [%0], %1;\n}\n" ::"r"(
                   shared_address(shared)),
               "f"(positive[0] + positive[1])
               : "memory");
}

#define PLIMSOLL_FOUR(m, i) m(i), m(i + 1), m(i + 2), m(i + 3)
#define PLIMSOLL_16(m, i) PLIMSOLL_FOUR(m, i), PLIMSOLL_FOUR(m, i + 4), PLIMSOLL_FOUR(m, i + 8), PLIMSOLL_FOUR(m, i + 12)
#define PLIMSOLL_32(m, i) PLIMSOLL_16(m, i), PLIMSOLL_16(m, i + 16)
#define PLIMSOLL_64(m, i) PLIMSOLL_32(m, i), PLIMSOLL_32(m, i + 32)
#define PLIMSOLL_OUT(i) "=f"(d.value[i])
#define PLIMSOLL_INOUT(i) "+f"(d.value[i])
#define PLIMSOLL_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define PLIMSOLL_NAMES_32 PLIMSOLL_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PLIMSOLL_NAMES_64                                                                                                           \
  PLIMSOLL_NAMES_32                                                                                                                 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, " \
  "%57, %58, %59, %60, %61, %62, %63"

// D = A·B or, with kAdd, D += A·B: 16 of k. Turned operands are rows of k.
#define PLIMSOLL_GROUP_ASM(out, columns, values, names, add, a, operands, ...)                                                           \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " add ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns "k16.f32.bf16.bf16 {" names \
               "}, " a ", add, 1, 1, " operands ";\n}\n"                                                                                 \
               : values(out, 0)                                                                                                          \
               : __VA_ARGS__)
#define PLIMSOLL_GROUP_FORMS(columns, text, values, names, x0, x1, x2, x3, x4, x5, x6)                                                    \
  template <int kPending>                                                                                                                 \
  PLIMSOLL_FUNCTION void group_wait(Begun&, GroupTile<columns>& d) {                                                                      \
    asm volatile("wgmma.wait_group.sync.aligned " x0 ";" : values(PLIMSOLL_INOUT, 0) : "n"(kPending) : "memory");                         \
  }                                                                                                                                       \
  template <bool kAdd, bool kTurnedA, bool kTurnedB>                                                                                      \
  PLIMSOLL_FUNCTION void multiply_group(Begun&, GroupTile<columns>& d, PanelOperand a, PanelOperand b) {                                  \
    if constexpr (kAdd) {                                                                                                                 \
      PLIMSOLL_GROUP_ASM(PLIMSOLL_INOUT, text, values, names, "1", x0 ", " x1, x2 ", " x3, "l"(a), "l"(b), "n"(int{kTurnedA}),            \
                         "n"(int{kTurnedB}));                                                                                             \
    } else {                                                                                                                              \
      PLIMSOLL_GROUP_ASM(PLIMSOLL_OUT, text, values, names, "0", x0 ", " x1, x2 ", " x3, "l"(a), "l"(b), "n"(int{kTurnedA}),              \
                         "n"(int{kTurnedB}));                                                                                             \
    }                                                                                                                                     \
  }                                                                                                                                       \
  template <bool kAdd, bool kTurnedB>                                                                                                     \
  PLIMSOLL_FUNCTION void multiply_group(Begun&, GroupTile<columns>& d, const GroupRows& a, PanelOperand b) {                              \
    if constexpr (kAdd) {                                                                                                                 \
      PLIMSOLL_GROUP_ASM(PLIMSOLL_INOUT, text, values, names, "1", "{" x0 ", " x1 ", " x2 ", " x3 "}, " x4, x5, "r"(a.r[0]), "r"(a.r[1]), \
                         "r"(a.r[2]), "r"(a.r[3]), "l"(b), "n"(int{kTurnedB}));                                                           \
    } else {                                                                                                                              \
      PLIMSOLL_GROUP_ASM(PLIMSOLL_OUT, text, values, names, "0", "{" x0 ", " x1 ", " x2 ", " x3 "}, " x4, x5, "r"(a.r[0]), "r"(a.r[1]),   \
                         "r"(a.r[2]), "r"(a.r[3]), "l"(b), "n"(int{kTurnedB}));                                                           \
    }                                                                                                                                     \
  }
PLIMSOLL_GROUP_FORMS(32, "32", PLIMSOLL_16, PLIMSOLL_NAMES_16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
PLIMSOLL_GROUP_FORMS(64, "64", PLIMSOLL_32, PLIMSOLL_NAMES_32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
PLIMSOLL_GROUP_FORMS(128, "128", PLIMSOLL_64, PLIMSOLL_NAMES_64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
#undef PLIMSOLL_GROUP_FORMS
#undef PLIMSOLL_GROUP_ASM
#undef PLIMSOLL_NAMES_64
#undef PLIMSOLL_NAMES_32
#undef PLIMSOLL_NAMES_16
#undef PLIMSOLL_INOUT
#undef PLIMSOLL_OUT
#undef PLIMSOLL_64
#undef PLIMSOLL_32
#undef PLIMSOLL_16
#undef PLIMSOLL_FOUR
#endif

template <int kColumns>
PLIMSOLL_FUNCTION void clear(GroupTile<kColumns>& d) {
#pragma unroll
  for (int i = 0; i < GroupTile<kColumns>::kValues; ++i) d.value[i] = 0;
}

// The values of a tile at 16 columns as rows of A, whose k are those columns.
template <int kColumns>
PLIMSOLL_FUNCTION GroupRows rows_of(const GroupTile<kColumns>& d, int step) {
  GroupRows rows;
#pragma unroll
  for (int i = 0; i < 4; ++i) rows.r[i] = pack_bf16(d.value[8 * step + 2 * i], d.value[8 * step + 2 * i + 1]);
  return rows;
}

// Rows of kWidth elements into panels of kRows rows.
template <int kRows, int kWidth>
PLIMSOLL_FUNCTION void copy_rows_ahead(Begun& begun, u32x4* shared, const u32x4* rows) {
  constexpr int kChunks = kWidth / 8;
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int at = thread_index() + i * kThreads;
    copy_ahead(begun, shared + panel_place<kRows>(at / kChunks, at % kChunks), rows + at);
  }
}

}  // namespace PLIMSOLL_DEVICE

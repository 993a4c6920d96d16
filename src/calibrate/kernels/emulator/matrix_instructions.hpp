// The matrix instructions with the register layouts of the hardware; included by device/instructions.hpp, in the processor's namespace.
// AMD: the layouts that AMD's Matrix Instruction Calculator prints (ROCm/amd_matrix_instruction_calculator 1.3). NVIDIA: those of the PTX
// ISA, "Matrix Fragments for mma".
#pragma once

// What the lanes of a wave show each other for one instruction.
template <class Operand>
struct Operands {
  Operand a, b;
};

template <class Operand>
const Operands<Operand>* show_operands(Operand a, Operand b) {
  static_assert(sizeof(Operands<Operand>) <= emulator::kSlot);
  const Operands<Operand> own{a, b};
  return reinterpret_cast<const Operands<Operand>*>(emulator::exchange(&own, sizeof own));
}

// One lane's operands within what was shown.
template <class Operand>
Operands<Operand> operands_of(const Operands<Operand>* shown, int lane) {
  Operands<Operand> result;
  std::memcpy(&result, reinterpret_cast<const std::byte*>(shown) + emulator::kSlot * static_cast<std::size_t>(lane), sizeof result);
  return result;
}

template <DType type, class Operand>
double element_of(const Operand& operand, int index) {
#if defined(PLIMSOLL_GFX)
  constexpr Fp8Format format = PLIMSOLL_GFX == 942 ? Fp8Format::e4m3_fnuz : Fp8Format::e4m3_ocp;
#else
  constexpr Fp8Format format = Fp8Format::e4m3_ocp;
#endif
  return element_value(type, format, reinterpret_cast<const std::byte*>(&operand), index);
}

#if defined(PLIMSOLL_AMD)

// kSide x kSide x K: lane l holds kPer consecutive k of row (column) l % kSide of A (B), from k = kPer · (l / kSide). Of D it holds column
// l % kSide; value i is row 8·(i/4) + 4·(l/32) + i%4 of 32, row 4·(l/16) + i of 16, and of 16 in fp64 row 4·i + l/16.
template <DType type, int kSide, int kPer, class Operand, class Values>
Values mfma(Operand a, Operand b, Values c) {
  constexpr int kGroups = 64 / kSide, kValues = kSide * kSide / 64;
  const Operands<Operand>* shown = show_operands(a, b);
  const int lane = lane_index(), column = lane % kSide, group = lane / kSide;
  for (int i = 0; i < kValues; ++i) {
    const int row = type == DType::fp64 ? 4 * i + group : kSide == 32 ? 8 * (i / 4) + 4 * group + i % 4 : 4 * group + i;
    auto sum = c[i];
    for (int g = 0; g < kGroups; ++g) {
      const Operand left = operands_of(shown, row + kSide * g).a, right = operands_of(shown, column + kSide * g).b;
      for (int k = 0; k < kPer; ++k) sum += static_cast<decltype(sum)>(element_of<type>(left, k) * element_of<type>(right, k));
    }
    c[i] = sum;
  }
  return c;
}

inline f32x4 mfma_16x16x4_f32(float a, float b, f32x4 c) { return mfma<DType::fp32, 16, 1>(a, b, c); }
inline f32x16 mfma_32x32x2_f32(float a, float b, f32x16 c) { return mfma<DType::fp32, 32, 1>(a, b, c); }
inline f64x4 mfma_16x16x4_f64(double a, double b, f64x4 c) { return mfma<DType::fp64, 16, 1>(a, b, c); }
#if PLIMSOLL_GFX < 950
inline f32x4 mfma_16x16x16_bf16(u32x2 a, u32x2 b, f32x4 c) { return mfma<DType::bf16, 16, 4>(a, b, c); }
inline f32x4 mfma_16x16x16_f16(u32x2 a, u32x2 b, f32x4 c) { return mfma<DType::fp16, 16, 4>(a, b, c); }
inline f32x16 mfma_32x32x8_bf16(u32x2 a, u32x2 b, f32x16 c) { return mfma<DType::bf16, 32, 4>(a, b, c); }
inline f32x16 mfma_32x32x8_f16(u32x2 a, u32x2 b, f32x16 c) { return mfma<DType::fp16, 32, 4>(a, b, c); }
#if PLIMSOLL_FP8
inline f32x4 mfma_16x16x32_fp8(u32x2 a, u32x2 b, f32x4 c) { return mfma<DType::fp8, 16, 8>(a, b, c); }
inline f32x16 mfma_32x32x16_fp8(u32x2 a, u32x2 b, f32x16 c) { return mfma<DType::fp8, 32, 8>(a, b, c); }
#endif
#else
inline f32x4 mfma_16x16x32_bf16(u32x4 a, u32x4 b, f32x4 c) { return mfma<DType::bf16, 16, 8>(a, b, c); }
inline f32x4 mfma_16x16x32_f16(u32x4 a, u32x4 b, f32x4 c) { return mfma<DType::fp16, 16, 8>(a, b, c); }
inline f32x16 mfma_32x32x16_bf16(u32x4 a, u32x4 b, f32x16 c) { return mfma<DType::bf16, 32, 8>(a, b, c); }
inline f32x16 mfma_32x32x16_f16(u32x4 a, u32x4 b, f32x16 c) { return mfma<DType::fp16, 32, 8>(a, b, c); }
inline f32x4 mfma_16x16x128_fp8(u32x8 a, u32x8 b, f32x4 c) { return mfma<DType::fp8, 16, 32>(a, b, c); }
inline f32x16 mfma_32x32x64_fp8(u32x8 a, u32x8 b, f32x16 c) { return mfma<DType::fp8, 32, 32>(a, b, c); }
#endif

#else  // NVIDIA

struct RegistersA {
  u32 r[4];
};
struct RegistersB {
  u32 r[2];
};
struct RegistersAb {
  RegistersA a;
  RegistersB b;
};

// m16n8: lane 4g + t holds of A the rows g (registers 0, 2) and g + 8 (1, 3), 4 bytes of k at 4t and, in registers 2 and 3, half of k
// later; of B the column g likewise; of D the rows g and g + 8 at the columns 2t and 2t + 1.
template <DType type>
void mma_m16n8_of(float* d, const RegistersA& a, const RegistersB& b) {
  constexpr int kPer = static_cast<int>(4 / size_of(type));
  const RegistersAb own{a, b};
  const std::byte* shown = emulator::exchange(&own, sizeof own);
  const auto lane_registers = [&](int lane) {
    RegistersAb registers;
    std::memcpy(&registers, shown + emulator::kSlot * static_cast<std::size_t>(lane), sizeof registers);
    return registers;
  };
  const int group = lane_index() / 4, t = lane_index() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = group + 8 * (i / 2), column = 2 * t + i % 2;
    for (int half = 0; half < 2; ++half) {
      for (int quarter = 0; quarter < 4; ++quarter) {
        const u32 left = lane_registers(row % 8 * 4 + quarter).a.r[2 * half + row / 8],
                  right = lane_registers(column * 4 + quarter).b.r[half];
        for (int k = 0; k < kPer; ++k) d[i] += static_cast<float>(element_of<type>(left, k) * element_of<type>(right, k));
      }
    }
  }
}

inline void mma_m16n8k16_bf16(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma_m16n8_of<DType::bf16>(d, {{a0, a1, a2, a3}}, {{b0, b1}});
}
inline void mma_m16n8k16_f16(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma_m16n8_of<DType::fp16>(d, {{a0, a1, a2, a3}}, {{b0, b1}});
}
inline void mma_m16n8k32_e4m3(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma_m16n8_of<DType::fp8>(d, {{a0, a1, a2, a3}}, {{b0, b1}});
}
// The lower 13 bits of a factor are not read.
inline u32 tf32_bits(u32 bits) { return bits & 0xFFFFE000u; }
inline void mma_m16n8k8_tf32(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma_m16n8_of<DType::fp32>(d, {{tf32_bits(a0), tf32_bits(a1), tf32_bits(a2), tf32_bits(a3)}}, {{tf32_bits(b0), tf32_bits(b1)}});
}

// m8n8k4: lane 4g + t holds A[g][t] and B[t][g]; of D the row g at the columns 2t and 2t + 1.
inline void mma_m8n8k4_f64(double* d, double a, double b) {
  const Operands<double>* shown = show_operands(a, b);
  const int row = lane_index() / 4, t = lane_index() % 4;
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 4; ++k) d[i] += operands_of(shown, 4 * row + k).a * operands_of(shown, 4 * (2 * t + i) + k).b;
  }
}
#endif

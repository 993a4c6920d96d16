// The matrix instructions with the register layouts of the hardware; included by device/instructions.hpp, in the processor's namespace.
// AMD: the layouts that AMD's Matrix Instruction Calculator prints (ROCm/amd_matrix_instruction_calculator 1.3). NVIDIA: those of the PTX
// ISA, "Matrix Fragments for mma".
#pragma once

// What a lane shows for one instruction.
template <class A, class B = A>
struct Operands {
  A a;
  B b;
};

// Element `index` of a lane's register operand.
template <DType type>
auto element_of(const void* operand, int index) {
#if defined(PLIMSOLL_GFX)
  constexpr Fp8Format format = PLIMSOLL_GFX == 942 ? Fp8Format::e4m3_fnuz : Fp8Format::e4m3_ocp;
#else
  constexpr Fp8Format format = Fp8Format::e4m3_ocp;
#endif
  if constexpr (type == DType::fp8) {
    static const std::array<float, 256> values = [] {
      std::array<float, 256> all{};
      for (int bits = 0; bits < 256; ++bits) all[static_cast<std::size_t>(bits)] = float_of_fp8(static_cast<std::uint8_t>(bits), format);
      return all;
    }();
    return values[static_cast<std::size_t>(static_cast<const std::byte*>(operand)[index])];
  } else if constexpr (type == DType::fp64) {
    return read_element<double>(static_cast<const std::byte*>(operand), index);
  } else {
    return static_cast<float>(element_value(type, format, static_cast<const std::byte*>(operand), index));
  }
}

// The product of a kRows x kDepth and a kDepth x kColumns matrix, in the type of D.
template <class Value, int kRows, int kColumns, int kDepth>
struct Product {
  Value a[kRows][kDepth], b[kDepth][kColumns];

  void write(std::byte* prepared) const {
    static_assert(sizeof(Value) * kRows * kColumns <= emulator::kPrepared);
    Value d[kRows][kColumns] = {};
    for (int i = 0; i < kRows; ++i) {
      for (int k = 0; k < kDepth; ++k) {
        for (int j = 0; j < kColumns; ++j) d[i][j] += a[i][k] * b[k][j];
      }
    }
    std::memcpy(prepared, d, sizeof d);
  }
};

template <class Value>
Value prepared_value(const std::byte* prepared, int index) {
  Value value;
  std::memcpy(&value, prepared + static_cast<std::size_t>(index) * sizeof value, sizeof value);
  return value;
}

inline const std::byte* slot(const std::byte* shown, int lane) { return shown + emulator::kSlot * static_cast<std::size_t>(lane); }

#if defined(PLIMSOLL_AMD)

// kSide x kSide x K: lane l holds kPer consecutive k of row (column) l % kSide of A (B), from k = kPer · (l / kSide). Of D it holds column
// l % kSide; value i is row 8·(i/4) + 4·(l/32) + i%4 of 32, row 4·(l/16) + i of 16, and of 16 in fp64 row 4·i + l/16.
template <DType type, int kSide, int kPer, class Operand>
void prepare_mfma(const std::byte* shown, std::byte* prepared) {
  using Value = typename std::conditional<type == DType::fp64, double, float>::type;
  using Shown = Operands<Operand>;
  Product<Value, kSide, kSide, 64 / kSide * kPer> product;
  for (int lane = 0; lane < 64; ++lane) {
    const std::byte* own = slot(shown, lane);
    for (int i = 0; i < kPer; ++i) {
      const int k = lane / kSide * kPer + i;
      product.a[lane % kSide][k] = element_of<type>(own + offsetof(Shown, a), i);
      product.b[k][lane % kSide] = element_of<type>(own + offsetof(Shown, b), i);
    }
  }
  product.write(prepared);
}

template <DType type, int kSide, int kPer, class Operand, class Values>
Values mfma(Operand a, Operand b, Values c) {
  using Value = typename std::conditional<type == DType::fp64, double, float>::type;
  static_assert(sizeof(Operands<Operand>) <= emulator::kSlot);
  const Operands<Operand> own{a, b};
  const std::byte* product = emulator::exchange(&own, sizeof own, prepare_mfma<type, kSide, kPer, Operand>).prepared;
  const int column = lane_index() % kSide, group = lane_index() / kSide;
  for (int i = 0; i < kSide * kSide / 64; ++i) {
    const int row = type == DType::fp64 ? 4 * i + group : kSide == 32 ? 8 * (i / 4) + 4 * group + i % 4 : 4 * group + i;
    c[i] += prepared_value<Value>(product, row * kSide + column);
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

// m16n8: lane 4g + t holds of A the rows g (registers 0, 2) and g + 8 (1, 3), 4 bytes of k at 4t and, in registers 2 and 3, half of k
// later; of B the column g likewise; of D the rows g and g + 8 at the columns 2t and 2t + 1.
template <DType type>
void prepare_m16n8(const std::byte* shown, std::byte* prepared) {
  constexpr int kPer = static_cast<int>(4 / size_of(type));
  Product<float, 16, 8, 8 * kPer> product;
  for (int lane = 0; lane < 32; ++lane) {
    Operands<RegistersA, RegistersB> own;
    std::memcpy(&own, slot(shown, lane), sizeof own);
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < kPer; ++i) {
        const int k = (4 * half + t) * kPer + i;
        product.a[g][k] = element_of<type>(&own.a.r[2 * half], i);
        product.a[g + 8][k] = element_of<type>(&own.a.r[2 * half + 1], i);
        product.b[k][g] = element_of<type>(&own.b.r[half], i);
      }
    }
  }
  product.write(prepared);
}

template <DType type>
void mma_m16n8_of(float* d, const RegistersA& a, const RegistersB& b) {
  const Operands<RegistersA, RegistersB> own{a, b};
  const std::byte* product = emulator::exchange(&own, sizeof own, prepare_m16n8<type>).prepared;
  const int g = lane_index() / 4, t = lane_index() % 4;
  for (int i = 0; i < 4; ++i) d[i] += prepared_value<float>(product, (g + 8 * (i / 2)) * 8 + 2 * t + i % 2);
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
inline void prepare_m8n8k4_f64(const std::byte* shown, std::byte* prepared) {
  Product<double, 8, 8, 4> product;
  for (int lane = 0; lane < 32; ++lane) {
    product.a[lane / 4][lane % 4] = element_of<DType::fp64>(slot(shown, lane), 0);
    product.b[lane % 4][lane / 4] = element_of<DType::fp64>(slot(shown, lane), 1);
  }
  product.write(prepared);
}
inline void mma_m8n8k4_f64(double* d, double a, double b) {
  const Operands<double> own{a, b};
  const std::byte* product = emulator::exchange(&own, sizeof own, prepare_m8n8k4_f64).prepared;
  const int g = lane_index() / 4, t = lane_index() % 4;
  for (int i = 0; i < 2; ++i) d[i] += prepared_value<double>(product, 8 * g + 2 * t + i);
}
#endif

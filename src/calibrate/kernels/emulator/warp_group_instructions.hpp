// Hopper's warp-group product: operands in shared memory, read by every lane for its own values of D; included by device/warp_group.hpp,
// in the processor's namespace. A product is done as late as the hardware may do it, when its group is waited for: what is overwritten
// too early spoils the answer.
#pragma once

struct Operand {
  const std::byte* shared;
  int row_chunks;  // of 16 bytes
};
template <int kRowChunks>
Operand shared_operand(const u32x4* shared) {
  return {reinterpret_cast<const std::byte*>(shared), kRowChunks};
}
inline Operand further_along_k(Operand operand, int bytes) { return {operand.shared + bytes, operand.row_chunks}; }

struct GroupAccumulator {
  float value[kGroupValues];

  struct Product {
    void (*multiply)(GroupAccumulator& d, Operand a, Operand b);
    Operand a, b;
  };
  std::vector<Product> issued;                   // not committed yet
  std::deque<std::vector<Product>> committed{};  // not done yet
};

inline void group_sees_shared_memory() {}
inline void group_begin() {}
inline void group_commit(GroupAccumulator& d) {
  d.committed.push_back(std::move(d.issued));
  d.issued.clear();
}
template <int kPending>
void group_wait(GroupAccumulator& d) {
  for (; d.committed.size() > kPending; d.committed.pop_front())
    for (const GroupAccumulator::Product& product : d.committed.front()) product.multiply(d, product.a, product.b);
}

// Row and 16-byte chunk of k of an operand.
inline const std::byte* chunk_at(Operand operand, int row, int chunk) {
  return operand.shared + (row / 8 * operand.row_chunks + chunk) * kChunkBytes + row % 8 * 16;
}

template <DType type>
float read_factor(const std::byte* chunk, int index) {
  const float value = element_of<type>(chunk, index);
  return type == DType::fp32 ? float_of_bits(tf32_bits(bits_of_float(value))) : value;
}

// m64n256: warp w of the group holds of D the rows 16w + g and 16w + g + 8; within eight columns as in m16n8.
template <DType type>
void group_product(GroupAccumulator& d, Operand a, Operand b) {
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
      d.value[value] += left[0][k] * right;
      d.value[value + 2] += left[1][k] * right;
    }
  }
}

inline void multiply_add_group(GroupAccumulator& d, Operand a, Operand b, bf16*) { d.issued.push_back({group_product<DType::bf16>, a, b}); }
inline void multiply_add_group(GroupAccumulator& d, Operand a, Operand b, fp16*) { d.issued.push_back({group_product<DType::fp16>, a, b}); }
inline void multiply_add_group(GroupAccumulator& d, Operand a, Operand b, tf32*) { d.issued.push_back({group_product<DType::fp32>, a, b}); }
inline void multiply_add_group(GroupAccumulator& d, Operand a, Operand b, fp8*) { d.issued.push_back({group_product<DType::fp8>, a, b}); }

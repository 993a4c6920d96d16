/// Matrix products as the BLAS libraries of both vendors take them: the codes of their types, and one way into the record.
#pragma once

#include "work.hpp"

namespace plimsoll::device::blas {

/// cudaDataType_t; hipDataType has the same numbers.
inline record::Type type_of(int code) {
  using record::Type;
  switch (code) {
    case 0:
      return Type::f32;
    case 1:
      return Type::f64;
    case 2:
      return Type::f16;
    case 3:
      return Type::i8;
    case 4:
      return Type::c64;
    case 5:
      return Type::c128;
    case 8:
      return Type::u8;
    case 10:
      return Type::i32;
    case 12:
      return Type::u32;
    case 14:
      return Type::bf16;
    case 16:
      return Type::i4;
    case 20:
      return Type::i16;
    case 24:
      return Type::i64;
    case 28:
      return Type::f8_e4m3;
    case 29:
      return Type::f8_e5m2;
    case 30:
      return Type::f8_e8m0;
    case 31:
      return Type::f6_e2m3;
    case 32:
      return Type::f6_e3m2;
    case 33:
      return Type::f4_e2m1;
    case 1000:
      return Type::f8_e4m3;  // HIP's fnuz variants
    case 1001:
      return Type::f8_e5m2;
    default:
      return Type::unknown;
  }
}

struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  std::uint32_t batch = 1;
  record::Type a = record::Type::unknown, b = a, c = a, d = a;
  record::Compute compute = record::Compute::unknown;
  int transpose_a = 0, transpose_b = 0;
  bool row_major = false;
  int epilogue = 1;
  std::uint64_t workspace_bytes = 0;
};

inline void multiply(const Product& p, const char* api, Stream& stream) {
  record::Gemm event{};
  event.m = p.m, event.n = p.n, event.k = p.k;
  event.batch = p.batch;
  event.a = p.a, event.b = p.b, event.c = p.c, event.d = p.d;
  event.compute = p.compute;
  event.transpose_a = static_cast<std::uint8_t>(p.transpose_a);
  event.transpose_b = static_cast<std::uint8_t>(p.transpose_b);
  event.row_major = p.row_major ? 1 : 0;
  event.epilogue = static_cast<std::uint16_t>(p.epilogue);
  event.workspace_bytes = p.workspace_bytes;
  gemm(event, api, stream);
}

}  // namespace plimsoll::device::blas

/// Matrix products as the BLAS libraries of both vendors take them: what their codes mean (the vendors' and libraries' own ranges do not
/// overlap), the handle that most of them have, and one way into the record.
#pragma once

#include "handles.hpp"
#include "work.hpp"

namespace plimsoll::device::blas {

/// cudaDataType_t and hipDataType, which has the same numbers (1000 and 1001 are its fnuz variants); rocblas_datatype from 150 on.
inline record::Type type_of(int code) {
  using record::Type;
  struct Row {
    int code;
    Type type;
  };
  constexpr Row kRows[] = {
      {0, Type::f32},      {1, Type::f64},        {2, Type::f16},        {3, Type::i8},       {4, Type::c64},      {5, Type::c128},
      {8, Type::u8},       {10, Type::i32},       {12, Type::u32},       {14, Type::bf16},    {16, Type::i4},      {20, Type::i16},
      {24, Type::i64},     {28, Type::f8_e4m3},   {29, Type::f8_e5m2},   {30, Type::f8_e8m0}, {31, Type::f6_e2m3}, {32, Type::f6_e3m2},
      {33, Type::f4_e2m1}, {1000, Type::f8_e4m3}, {1001, Type::f8_e5m2}, {150, Type::f16},    {151, Type::f32},    {152, Type::f64},
      {154, Type::c64},    {155, Type::c128},     {160, Type::i8},       {161, Type::u8},     {162, Type::i32},    {163, Type::u32},
      {168, Type::bf16},   {170, Type::f8_e4m3},  {171, Type::f8_e5m2},
  };
  for (const Row& row : kRows)
    if (row.code == code) return row.type;
  return Type::unknown;
}

/// hipblasComputeType_t, cublasComputeType_t from 64 on, rocblas_datatype from 150 on, rocblas_computetype from 300 on.
inline record::Compute compute_of(int code) {
  using record::Compute;
  switch (code) {
    case 0:
    case 1:
    case 64:
    case 65:
    case 150:
      return Compute::f16;
    case 2:
    case 3:
    case 68:
    case 69:
    case 78:
    case 151:
    case 154:
    case 300:
      return Compute::f32;
    case 4:
    case 74:
      return Compute::f32_from_f16;
    case 5:
    case 75:
      return Compute::f32_from_bf16;
    case 6:
    case 77:
      return Compute::tf32;
    case 7:
    case 8:
    case 70:
    case 71:
    case 79:
    case 152:
    case 155:
      return Compute::f64;
    case 9:
    case 10:
    case 72:
    case 73:
    case 162:
      return Compute::i32;
    default:
      return Compute::unknown;
  }
}

/// cublasOperation_t, or the others' from 111 on: 0 as it is, 1 transposed, 2 conjugated.
inline int operation_of(int code) { return code >= 111 ? code - 111 : code; }

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

inline Product product(int ta, int tb, std::int64_t m, std::int64_t n, std::int64_t k, record::Type type, record::Compute compute,
                       std::int64_t batch = 1) {
  Product p;
  p.m = m, p.n = n, p.k = k;
  p.batch = static_cast<std::uint32_t>(batch);
  p.a = p.b = p.c = p.d = type;
  p.compute = compute;
  p.transpose_a = operation_of(ta), p.transpose_b = operation_of(tb);
  return p;
}

/// The same with the libraries' codes for the types.
inline Product product(int ta, int tb, std::int64_t m, std::int64_t n, std::int64_t k, int a, int b, int c, int compute,
                       std::int64_t batch = 1) {
  Product p = product(ta, tb, m, n, k, record::Type::unknown, compute_of(compute), batch);
  p.a = type_of(a), p.b = type_of(b), p.c = p.d = type_of(c);
  return p;
}

/// What a handle is told and gives back.
struct Context {
  void* stream = nullptr;
  int math = 0, pointer_mode = 0, atomics = 0, processors = 0;
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

/// False for sizes or a stream that are none. Nothing to multiply is no work.
inline bool run(const Context& context, Product p, const char* api) {
  constexpr int kTf32Math = 3;  // cuBLAS
  Stream* stream = stream_of(context.stream);
  if (stream == nullptr || p.m < 0 || p.n < 0 || p.k < 0) return false;
  p.workspace_bytes = context.workspace_bytes;
  if (p.compute == record::Compute::f32 && p.a == record::Type::f32 && context.math == kTf32Math) p.compute = record::Compute::tf32;
  if (p.m > 0 && p.n > 0 && p.batch > 0) multiply(p, api, *stream);
  return true;
}

}  // namespace plimsoll::device::blas

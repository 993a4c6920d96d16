// cuBLAS and hipBLAS: handles keep what they are told, matrix products are recorded with their shapes, the rest is named in the record.
#include <cstddef>

#include "blas_vendor.hpp"

using namespace plimsoll::device;
using blas::Context;
using blas::product;
using plimsoll::device::record::Compute;
using plimsoll::device::record::Type;

namespace {

Context& context(Handle handle) { return *static_cast<Context*>(handle); }

int run(Handle handle, const blas::Product& p, const char* api) {
  constexpr int kNotInitialized = 1;
  if (handle == nullptr) return kNotInitialized;
  return blas::run(context(handle), p, api) ? kBlasSuccess : kBlasInvalidValue;
}

}  // namespace

PLIMSOLL_DEVICE_API int BLAS_V2(Create)(Handle* handle) {
  *handle = new Context;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int BLAS_V2(Destroy)(Handle handle) {
  delete static_cast<Context*>(handle);
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int BLAS_V2(GetVersion)(Handle, int* version) {
  *version = kBlasVersion;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int BLAS(GetProperty)(int which, int* value) {
  *value = which == 0 ? kBlasVersion / 10000 : which == 1 ? kBlasVersion / 100 % 100 : kBlasVersion % 100;
  return kBlasSuccess;
}
#if !PLIMSOLL_HIP
PLIMSOLL_DEVICE_API std::size_t cublasGetCudartVersion() { return PLIMSOLL_CUDA_MAJOR < 13 ? 12090 : 13020; }
#endif
PLIMSOLL_DEVICE_API const char* BLAS(GetStatusName)(int status) {
  return status == 0 ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_INVALID_VALUE";
}
PLIMSOLL_DEVICE_API const char* BLAS(GetStatusString)(int status) { return status == 0 ? "success" : "invalid value"; }
PLIMSOLL_DEVICE_API int BLAS_V2(SetStream)(Handle handle, Handle stream) {
  context(handle).stream = stream;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int BLAS_V2(GetStream)(Handle handle, Handle* stream) {
  *stream = context(handle).stream;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int BLAS_V2(SetWorkspace)(Handle handle, void*, std::size_t bytes) {
  context(handle).workspace_bytes = bytes;
  return kBlasSuccess;
}

// Settings that are kept and given back.
#define SETTING(NAME_OF, name, field)                                     \
  PLIMSOLL_DEVICE_API int NAME_OF(Set##name)(Handle handle, int value) {  \
    context(handle).field = value;                                        \
    return kBlasSuccess;                                                  \
  }                                                                       \
  PLIMSOLL_DEVICE_API int NAME_OF(Get##name)(Handle handle, int* value) { \
    *value = context(handle).field;                                       \
    return kBlasSuccess;                                                  \
  }
SETTING(BLAS, MathMode, math)
SETTING(BLAS_V2, PointerMode, pointer_mode)
SETTING(BLAS, AtomicsMode, atomics)
SETTING(BLAS, SmCountTarget, processors)
#undef SETTING

// Every product comes with 32-bit sizes, and with 64-bit ones under a name that says so.
#define BOTH_WIDTHS(MACRO, ...) MACRO(, int, __VA_ARGS__) MACRO(_64, std::int64_t, __VA_ARGS__)

#define TYPED(suffix, Int, letter, type, compute)                                                                                          \
  PLIMSOLL_DEVICE_API int BLAS_V2_WIDE(letter##gemm, suffix)(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, Int, \
                                                             const void*, Int, const void*, void*, Int) {                                  \
    return run(h, product(ta, tb, m, n, k, Type::type, Compute::compute), BLAS_NAME #letter "gemm");                                       \
  }                                                                                                                                        \
  PLIMSOLL_DEVICE_API int BLAS(letter##gemmStridedBatched##suffix)(Handle h, int ta, int tb, Int m, Int n, Int k, const void*,             \
                                                                   const void*, Int, long long, const void*, Int, long long, const void*,  \
                                                                   void*, Int, long long, Int batch) {                                     \
    return run(h, product(ta, tb, m, n, k, Type::type, Compute::compute, batch), BLAS_NAME #letter "gemmStridedBatched");                  \
  }                                                                                                                                        \
  PLIMSOLL_DEVICE_API int BLAS(letter##gemmBatched##suffix)(Handle h, int ta, int tb, Int m, Int n, Int k, const void*,                    \
                                                            const void* const*, Int, const void* const*, Int, const void*, void* const*,   \
                                                            Int, Int batch) {                                                              \
    return run(h, product(ta, tb, m, n, k, Type::type, Compute::compute, batch), BLAS_NAME #letter "gemmBatched");                         \
  }                                                                                                                                        \
  PLIMSOLL_DEVICE_API int BLAS_V2_WIDE(letter##gemv, suffix)(Handle h, int ta, Int m, Int n, const void*, const void*, Int, const void*,   \
                                                             Int, const void*, void*, Int) {                                               \
    const bool turned = blas::operation_of(ta) != 0;                                                                                       \
    return run(h, product(ta, ta - blas::operation_of(ta), turned ? n : m, 1, turned ? m : n, Type::type, Compute::compute),               \
               BLAS_NAME #letter "gemv");                                                                                                  \
  }
BOTH_WIDTHS(TYPED, S, f32, f32)
BOTH_WIDTHS(TYPED, D, f64, f64)
BOTH_WIDTHS(TYPED, C, c64, f32)
BOTH_WIDTHS(TYPED, Z, c128, f64)
#undef TYPED

// A sum of products of two vectors: a product with one row and one column.
#define DOT(suffix, Int, name, type, compute)                                                                      \
  PLIMSOLL_DEVICE_API int BLAS_V2_WIDE(name, suffix)(Handle h, Int n, const void*, Int, const void*, Int, void*) { \
    return run(h, product(0, 0, 1, 1, n, Type::type, Compute::compute), BLAS_NAME #name);                          \
  }
BOTH_WIDTHS(DOT, Sdot, f32, f32)
BOTH_WIDTHS(DOT, Ddot, f64, f64)
BOTH_WIDTHS(DOT, Cdotu, c64, f32)
BOTH_WIDTHS(DOT, Cdotc, c64, f32)
BOTH_WIDTHS(DOT, Zdotu, c128, f64)
BOTH_WIDTHS(DOT, Zdotc, c128, f64)
#undef DOT

#define HALF(suffix, Int, unused)                                                                                                         \
  PLIMSOLL_DEVICE_API int BLAS(Hgemm##suffix)(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, Int, const void*,  \
                                              Int, const void*, void*, Int) {                                                             \
    return run(h, product(ta, tb, m, n, k, Type::f16, Compute::f16), BLAS_NAME "Hgemm");                                                  \
  }                                                                                                                                       \
  PLIMSOLL_DEVICE_API int BLAS(HgemmStridedBatched##suffix)(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, Int, \
                                                            long long, const void*, Int, long long, const void*, void*, Int, long long,   \
                                                            Int batch) {                                                                  \
    return run(h, product(ta, tb, m, n, k, Type::f16, Compute::f16, batch), BLAS_NAME "HgemmStridedBatched");                             \
  }                                                                                                                                       \
  PLIMSOLL_DEVICE_API int BLAS(SgemmEx##suffix)(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, int a, Int,      \
                                                const void*, int b, Int, const void*, void*, int c, Int) {                                \
    return run(h, product(ta, tb, m, n, k, a, b, c, 68), BLAS_NAME "SgemmEx");                                                            \
  }
BOTH_WIDTHS(HALF, )
#undef HALF

#define EXTENDED(suffix, Int, unused)                                                                                                    \
  PLIMSOLL_DEVICE_API int BLAS(GemmEx##suffix)(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, int a, Int,      \
                                               const void*, int b, Int, const void*, void*, int c, Int, int compute, int) {              \
    return run(h, product(ta, tb, m, n, k, a, b, c, compute), BLAS_NAME "GemmEx");                                                       \
  }                                                                                                                                      \
  PLIMSOLL_DEVICE_API int BLAS(GemmStridedBatchedEx##suffix)(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*,    \
                                                             int a, Int, long long, const void*, int b, Int, long long, const void*,     \
                                                             void*, int c, Int, long long, Int batch, int compute, int) {                \
    return run(h, product(ta, tb, m, n, k, a, b, c, compute, batch), BLAS_NAME "GemmStridedBatchedEx");                                  \
  }                                                                                                                                      \
  PLIMSOLL_DEVICE_API int BLAS(GemmBatchedEx##suffix)(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void* const*,    \
                                                      int a, Int, const void* const*, int b, Int, const void*, void* const*, int c, Int, \
                                                      Int batch, int compute, int) {                                                     \
    return run(h, product(ta, tb, m, n, k, a, b, c, compute, batch), BLAS_NAME "GemmBatchedEx");                                         \
  }                                                                                                                                      \
  PLIMSOLL_DEVICE_API int BLAS(GemmGroupedBatchedEx##suffix)(Handle h, const int* ta, const int* tb, const Int* m, const Int* n,         \
                                                             const Int* k, const void*, const void* const*, int a, const Int*,           \
                                                             const void* const*, int b, const Int*, const void*, void* const*, int c,    \
                                                             const Int*, Int groups, const Int* sizes, int compute) {                    \
    for (Int i = 0; i < groups; ++i) {                                                                                                   \
      const int status = run(h, product(ta[i], tb[i], m[i], n[i], k[i], a, b, c, compute, sizes[i]), BLAS_NAME "GemmGroupedBatchedEx");  \
      if (status != kBlasSuccess) return status;                                                                                         \
    }                                                                                                                                    \
    return kBlasSuccess;                                                                                                                 \
  }

#define DOT_EXTENDED(suffix, Int, unused)                                                                                           \
  PLIMSOLL_DEVICE_API int BLAS(DotEx##suffix)(Handle h, Int n, const void*, int x, Int, const void*, int y, Int, void*, int result, \
                                              int compute) {                                                                        \
    blas::Product p = product(0, 0, 1, 1, n, x, y, result, compute);                                                                \
    p.compute = blas::type_of(compute) == Type::f64 ? Compute::f64 : Compute::f32;                                                  \
    return run(h, p, BLAS_NAME "DotEx");                                                                                            \
  }

BOTH_WIDTHS(EXTENDED, )
BOTH_WIDTHS(DOT_EXTENDED, )
#if PLIMSOLL_HIP
EXTENDED(_v2, int, )
EXTENDED(_v2_64, std::int64_t, )
DOT_EXTENDED(_v2, int, )
DOT_EXTENDED(_v2_64, std::int64_t, )
#endif
#undef EXTENDED
#undef DOT_EXTENDED
#undef BOTH_WIDTHS

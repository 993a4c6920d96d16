// cuBLAS: handles keep what they are told, matrix products are recorded with their shapes, the rest is named in the record.
#include <cstring>

#include "blas_types.hpp"

using namespace plimsoll::device;
using namespace plimsoll::device::cuda;
using plimsoll::device::record::Compute;
using plimsoll::device::record::Type;

namespace {

struct Context {
  Handle stream = nullptr;
  int math = 0, pointer_mode = 0, atomics = 0, processors = 0;
  std::uint64_t workspace_bytes = 0;
};

constexpr int kTf32Math = 3;

/// A product in the context's stream.
int run(Handle handle, blas::Product product, const char* api) {
  const auto* context = static_cast<Context*>(handle);
  if (context == nullptr) return 1;  // not initialized
  if (product.m < 0 || product.n < 0 || product.k < 0) return kBlasInvalidValue;
  product.workspace_bytes = context->workspace_bytes;
  if (product.compute == Compute::f32 && product.a == Type::f32 && context->math == kTf32Math) product.compute = Compute::tf32;
  Stream* stream = stream_of(context->stream);
  if (stream == nullptr) return kBlasInvalidValue;
  if (product.m > 0 && product.n > 0 && product.batch > 0) blas::multiply(product, api, *stream);
  return kBlasSuccess;
}

blas::Product product(int ta, int tb, std::int64_t m, std::int64_t n, std::int64_t k, Type type, Compute compute, std::int64_t batch = 1) {
  blas::Product p;
  p.m = m, p.n = n, p.k = k;
  p.batch = static_cast<std::uint32_t>(batch);
  p.a = p.b = p.c = p.d = type;
  p.compute = compute;
  p.transpose_a = ta, p.transpose_b = tb;
  return p;
}

blas::Product product(int ta, int tb, std::int64_t m, std::int64_t n, std::int64_t k, int a, int b, int c, Compute compute,
                      std::int64_t batch = 1) {
  blas::Product p = product(ta, tb, m, n, k, Type::unknown, compute, batch);
  p.a = blas::type_of(a), p.b = blas::type_of(b), p.c = p.d = blas::type_of(c);
  return p;
}

Context& context(Handle handle) { return *static_cast<Context*>(handle); }

}  // namespace

PLIMSOLL_DEVICE_API int cublasCreate_v2(Handle* handle) {
  *handle = new Context;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int cublasDestroy_v2(Handle handle) {
  delete static_cast<Context*>(handle);
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int cublasGetVersion_v2(Handle, int* version) {
  *version = kBlasVersion;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int cublasGetProperty(int which, int* value) {
  *value = which == 0 ? kBlasVersion / 10000 : which == 1 ? kBlasVersion / 100 % 100 : kBlasVersion % 100;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API std::size_t cublasGetCudartVersion() { return PLIMSOLL_CUDA_MAJOR < 13 ? 12090 : 13020; }
PLIMSOLL_DEVICE_API const char* cublasGetStatusName(int status) {
  return status == 0 ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_INVALID_VALUE";
}
PLIMSOLL_DEVICE_API const char* cublasGetStatusString(int status) { return status == 0 ? "success" : "invalid value"; }
PLIMSOLL_DEVICE_API int cublasSetStream_v2(Handle handle, Handle stream) {
  context(handle).stream = stream;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int cublasGetStream_v2(Handle handle, Handle* stream) {
  *stream = context(handle).stream;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int cublasSetWorkspace_v2(Handle handle, void*, std::size_t bytes) {
  context(handle).workspace_bytes = bytes;
  return kBlasSuccess;
}

// Settings that are kept and given back.
#define SETTING(name, version, field)                                           \
  PLIMSOLL_DEVICE_API int cublasSet##name##version(Handle handle, int value) {  \
    context(handle).field = value;                                              \
    return kBlasSuccess;                                                        \
  }                                                                             \
  PLIMSOLL_DEVICE_API int cublasGet##name##version(Handle handle, int* value) { \
    *value = context(handle).field;                                             \
    return kBlasSuccess;                                                        \
  }
SETTING(MathMode, , math)
SETTING(PointerMode, _v2, pointer_mode)
SETTING(AtomicsMode, , atomics)
SETTING(SmCountTarget, , processors)
#undef SETTING

// Every product comes with 32-bit sizes, and with 64-bit ones under a name that says so.
#define BOTH_WIDTHS(MACRO, ...) MACRO(, int, __VA_ARGS__) MACRO(_64, std::int64_t, __VA_ARGS__)

#define TYPED(suffix, Int, letter, type, compute)                                                                                          \
  PLIMSOLL_DEVICE_API int cublas##letter##gemm_v2##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, Int,    \
                                                          const void*, Int, const void*, void*, Int) {                                     \
    return run(h, product(ta, tb, m, n, k, Type::type, Compute::compute), "cublas" #letter "gemm");                                        \
  }                                                                                                                                        \
  PLIMSOLL_DEVICE_API int cublas##letter##gemmStridedBatched##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*,           \
                                                                     const void*, Int, long long, const void*, Int, long long,             \
                                                                     const void*, void*, Int, long long, Int batch) {                      \
    return run(h, product(ta, tb, m, n, k, Type::type, Compute::compute, batch), "cublas" #letter "gemmStridedBatched");                   \
  }                                                                                                                                        \
  PLIMSOLL_DEVICE_API int cublas##letter##gemmBatched##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*,                  \
                                                              const void* const*, Int, const void* const*, Int, const void*, void* const*, \
                                                              Int, Int batch) {                                                            \
    return run(h, product(ta, tb, m, n, k, Type::type, Compute::compute, batch), "cublas" #letter "gemmBatched");                          \
  }                                                                                                                                        \
  PLIMSOLL_DEVICE_API int cublas##letter##gemv_v2##suffix(Handle h, int ta, Int m, Int n, const void*, const void*, Int, const void*, Int, \
                                                          const void*, void*, Int) {                                                       \
    const bool turned = ta != 0;                                                                                                           \
    return run(h, product(ta, 0, turned ? n : m, 1, turned ? m : n, Type::type, Compute::compute), "cublas" #letter "gemv");               \
  }
BOTH_WIDTHS(TYPED, S, f32, f32)
BOTH_WIDTHS(TYPED, D, f64, f64)
BOTH_WIDTHS(TYPED, C, c64, f32)
BOTH_WIDTHS(TYPED, Z, c128, f64)
#undef TYPED

#define HALF(suffix, Int, unused)                                                                                                         \
  PLIMSOLL_DEVICE_API int cublasHgemm##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, Int, const void*,  \
                                              Int, const void*, void*, Int) {                                                             \
    return run(h, product(ta, tb, m, n, k, Type::f16, Compute::f16), "cublasHgemm");                                                      \
  }                                                                                                                                       \
  PLIMSOLL_DEVICE_API int cublasHgemmStridedBatched##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, Int, \
                                                            long long, const void*, Int, long long, const void*, void*, Int, long long,   \
                                                            Int batch) {                                                                  \
    return run(h, product(ta, tb, m, n, k, Type::f16, Compute::f16, batch), "cublasHgemmStridedBatched");                                 \
  }                                                                                                                                       \
  PLIMSOLL_DEVICE_API int cublasSgemmEx##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, int a, Int,      \
                                                const void*, int b, Int, const void*, void*, int c, Int) {                                \
    return run(h, product(ta, tb, m, n, k, a, b, c, Compute::f32), "cublasSgemmEx");                                                      \
  }
BOTH_WIDTHS(HALF, )
#undef HALF

#define EXTENDED(suffix, Int, unused)                                                                                                    \
  PLIMSOLL_DEVICE_API int cublasGemmEx##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, int a, Int,      \
                                               const void*, int b, Int, const void*, void*, int c, Int, int compute, int) {              \
    return run(h, product(ta, tb, m, n, k, a, b, c, compute_of(compute)), "cublasGemmEx");                                               \
  }                                                                                                                                      \
  PLIMSOLL_DEVICE_API int cublasGemmStridedBatchedEx##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*,    \
                                                             int a, Int, long long, const void*, int b, Int, long long, const void*,     \
                                                             void*, int c, Int, long long, Int batch, int compute, int) {                \
    return run(h, product(ta, tb, m, n, k, a, b, c, compute_of(compute), batch), "cublasGemmStridedBatchedEx");                          \
  }                                                                                                                                      \
  PLIMSOLL_DEVICE_API int cublasGemmBatchedEx##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void* const*,    \
                                                      int a, Int, const void* const*, int b, Int, const void*, void* const*, int c, Int, \
                                                      Int batch, int compute, int) {                                                     \
    return run(h, product(ta, tb, m, n, k, a, b, c, compute_of(compute), batch), "cublasGemmBatchedEx");                                 \
  }                                                                                                                                      \
  PLIMSOLL_DEVICE_API int cublasGemmGroupedBatchedEx##suffix(Handle h, const int* ta, const int* tb, const Int* m, const Int* n,         \
                                                             const Int* k, const void*, const void* const*, int a, const Int*,           \
                                                             const void* const*, int b, const Int*, const void*, void* const*, int c,    \
                                                             const Int*, Int groups, const Int* sizes, int compute) {                    \
    for (Int i = 0; i < groups; ++i) {                                                                                                   \
      const int status =                                                                                                                 \
          run(h, product(ta[i], tb[i], m[i], n[i], k[i], a, b, c, compute_of(compute), sizes[i]), "cublasGemmGroupedBatchedEx");         \
      if (status != kBlasSuccess) return status;                                                                                         \
    }                                                                                                                                    \
    return kBlasSuccess;                                                                                                                 \
  }
BOTH_WIDTHS(EXTENDED, )
#undef EXTENDED
#undef BOTH_WIDTHS

// rocBLAS: handles keep what they are told, matrix products are recorded with their shapes, the rest is named in the record.
#include "rehearse/device/core/blas.hpp"
#include "rehearse/device/core/interface.hpp"

using namespace plimsoll::device;
using blas::Context;
using blas::product;
using plimsoll::device::record::Compute;
using plimsoll::device::record::Type;

namespace {

constexpr int kSuccess = 0, kInvalidHandle = 1, kInvalidSize = 4;

Context& context(Handle handle) { return *static_cast<Context*>(handle); }

int run(Handle handle, const blas::Product& p, const char* api) {
  if (handle == nullptr) return kInvalidHandle;
  return blas::run(context(handle), p, api) ? kSuccess : kInvalidSize;
}

/// With a type of its own for what is written.
blas::Product with_output(blas::Product p, int d) {
  p.d = blas::type_of(d);
  return p;
}

}  // namespace

PLIMSOLL_DEVICE_API int rocblas_create_handle(Handle* handle) {
  *handle = new Context;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int rocblas_destroy_handle(Handle handle) {
  delete static_cast<Context*>(handle);
  return kSuccess;
}
PLIMSOLL_DEVICE_API void rocblas_initialize() {}
PLIMSOLL_DEVICE_API int rocblas_set_stream(Handle handle, Handle stream) {
  context(handle).stream = stream;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int rocblas_get_stream(Handle handle, Handle* stream) {
  *stream = context(handle).stream;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int rocblas_set_workspace(Handle handle, void*, std::size_t bytes) {
  context(handle).workspace_bytes = bytes;
  return kSuccess;
}
PLIMSOLL_DEVICE_API const char* rocblas_status_to_string(int status) {
  return status == kSuccess         ? "rocblas_status_success"
         : status == kInvalidHandle ? "rocblas_status_invalid_handle"
                                    : "rocblas_status_invalid_size";
}

// Settings that are kept and given back. The math mode is another one than cuBLAS's and changes no type here.
#define SETTING(name, field)                                              \
  PLIMSOLL_DEVICE_API int rocblas_set_##name(Handle handle, int value) {  \
    context(handle).field = value;                                        \
    return kSuccess;                                                      \
  }                                                                       \
  PLIMSOLL_DEVICE_API int rocblas_get_##name(Handle handle, int* value) { \
    *value = context(handle).field;                                       \
    return kSuccess;                                                      \
  }
SETTING(pointer_mode, pointer_mode)
SETTING(atomics_mode, atomics)
#undef SETTING

// Every product comes with 32-bit sizes, and with 64-bit ones under a name that says so.
#define BOTH_WIDTHS(MACRO, ...) MACRO(, int, __VA_ARGS__) MACRO(_64, std::int64_t, __VA_ARGS__)

#define TYPED(suffix, Int, letter, type, compute)                                                                                        \
  PLIMSOLL_DEVICE_API int rocblas_##letter##gemm##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, Int,   \
                                                         const void*, Int, const void*, void*, Int) {                                    \
    return run(h, product(ta, tb, m, n, k, Type::type, Compute::compute), "rocblas_" #letter "gemm");                                    \
  }                                                                                                                                      \
  PLIMSOLL_DEVICE_API int rocblas_##letter##gemm_strided_batched##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*,     \
                                                                         const void*, Int, std::int64_t, const void*, Int, std::int64_t, \
                                                                         const void*, void*, Int, std::int64_t, Int batch) {             \
    return run(h, product(ta, tb, m, n, k, Type::type, Compute::compute, batch), "rocblas_" #letter "gemm_strided_batched");             \
  }                                                                                                                                      \
  PLIMSOLL_DEVICE_API int rocblas_##letter##gemm_batched##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*,             \
                                                                 const void* const*, Int, const void* const*, Int, const void*,          \
                                                                 void* const*, Int, Int batch) {                                         \
    return run(h, product(ta, tb, m, n, k, Type::type, Compute::compute, batch), "rocblas_" #letter "gemm_batched");                     \
  }
BOTH_WIDTHS(TYPED, h, f16, f16)
BOTH_WIDTHS(TYPED, s, f32, f32)
BOTH_WIDTHS(TYPED, d, f64, f64)
BOTH_WIDTHS(TYPED, c, c64, f32)
BOTH_WIDTHS(TYPED, z, c128, f64)
#undef TYPED

#define EXTENDED(suffix, Int, unused)                                                                                                     \
  PLIMSOLL_DEVICE_API int rocblas_gemm_ex##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, int a, Int,    \
                                                  const void*, int b, Int, const void*, const void*, int c, Int, void*, int d, Int,       \
                                                  int compute, int, std::int32_t, std::uint32_t) {                                        \
    return run(h, with_output(product(ta, tb, m, n, k, a, b, c, compute), d), "rocblas_gemm_ex");                                         \
  }                                                                                                                                       \
  PLIMSOLL_DEVICE_API int rocblas_gemm_strided_batched_ex##suffix(                                                                        \
      Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, int a, Int, std::int64_t, const void*, int b, Int,         \
      std::int64_t, const void*, const void*, int c, Int, std::int64_t, void*, int d, Int, std::int64_t, Int batch, int compute, int,     \
      std::int32_t, std::uint32_t) {                                                                                                      \
    return run(h, with_output(product(ta, tb, m, n, k, a, b, c, compute, batch), d), "rocblas_gemm_strided_batched_ex");                  \
  }                                                                                                                                       \
  PLIMSOLL_DEVICE_API int rocblas_gemm_batched_ex##suffix(Handle h, int ta, int tb, Int m, Int n, Int k, const void*, const void*, int a, \
                                                          Int, const void*, int b, Int, const void*, const void*, int c, Int, void*,      \
                                                          int d, Int, Int batch, int compute, int, std::int32_t, std::uint32_t) {         \
    return run(h, with_output(product(ta, tb, m, n, k, a, b, c, compute, batch), d), "rocblas_gemm_batched_ex");                          \
  }
BOTH_WIDTHS(EXTENDED, )
#undef EXTENDED
#undef BOTH_WIDTHS

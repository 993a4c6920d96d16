// Matrix products of rocBLAS and cuBLAS through their C interfaces, by dlopen.
#include "calibrate/gpu_backend.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

[[noreturn]] void failed(const std::string& library, const char* call, int code) {
  fail(std::string(call) + " returns " + std::to_string(code), library, "what was measured until now is kept in the samples");
}

/// The matrices of a call, one product of its batch.
struct OneProduct {
  const void *a, *b;
  void* d;
};
OneProduct product_of(const GemmCall& call, std::int64_t i) {
  const auto behind = [&](void* first, std::int64_t stride, DType type) {
    return static_cast<std::byte*>(first) + i * stride * size_of(type);
  };
  return {behind(call.a, call.stride_a, call.type), behind(call.b, call.stride_b, call.type), behind(call.d, call.stride_d, call.type)};
}

// ---- rocBLAS (rocblas-types.h) -----------------------------------------------------------------------------------------

class RocBlas : public GemmLibrary {
 public:
  explicit RocBlas(std::unique_ptr<DynamicLibrary> library) : library_(std::move(library)) {
    create_ = library_->find<int(void**)>("rocblas_create_handle");
    set_stream_ = library_->find<int(void*, void*)>("rocblas_set_stream");
    gemm_ = library_->find<Gemm>("rocblas_gemm_ex");
  }
  bool complete() { return create_ && set_stream_ && gemm_ && create_(&handle_) == 0; }
  std::string name() const override { return "rocblas"; }
  bool takes(const GemmCall& call) override { return type_of(call.type) != 0 && call.arithmetic == Arithmetic::native; }

  bool multiply(const GemmCall& call, void* stream) override {
    if (!takes(call)) return false;
    const int type = type_of(call.type);
    const int compute = call.type == DType::fp64 ? kF64 : kF32;
    const double wide[2] = {1, 0};
    const float narrow[2] = {1, 0};
    const void* alpha = call.type == DType::fp64 ? static_cast<const void*>(&wide[0]) : &narrow[0];
    const void* beta = call.type == DType::fp64 ? static_cast<const void*>(&wide[1]) : &narrow[1];
    const int m = static_cast<int>(call.m), n = static_cast<int>(call.n), k = static_cast<int>(call.k);
    if (const int code = set_stream_(handle_, stream); code != 0) failed("rocblas", "rocblas_set_stream", code);
    const int lda = static_cast<int>(call.leading_a()), ldb = static_cast<int>(call.leading_b());
    const auto operation = [](bool transposed) { return transposed ? 112 : 111; };
    constexpr int kStandard = 0;
    for (std::int64_t i = 0; i < call.batch; ++i) {
      const OneProduct one = product_of(call, i);
      const int code = gemm_(handle_, operation(call.transpose_a), operation(call.transpose_b), m, n, k, alpha, one.a, type, lda, one.b,
                             type, ldb, beta, one.d, type, m, one.d, type, m, compute, kStandard, 0, 0);
      if (code != 0) failed("rocblas", "rocblas_gemm_ex", code);
    }
    return true;
  }

 private:
  using Gemm = int(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, const void*, int,
                   int, void*, int, int, int, int, std::int32_t, std::uint32_t);
  static constexpr int kF32 = 151, kF64 = 152;
  static int type_of(DType type) {
    switch (type) {
      case DType::fp16:
        return 150;
      case DType::fp32:
        return kF32;
      case DType::fp64:
        return kF64;
      case DType::bf16:
        return 168;
      default:
        return 0;
    }
  }

  std::unique_ptr<DynamicLibrary> library_;
  int (*create_)(void**) = nullptr;
  int (*set_stream_)(void*, void*) = nullptr;
  Gemm* gemm_ = nullptr;
  void* handle_ = nullptr;
};

// ---- cuBLAS (cublas_api.h, library_types.h) ----------------------------------------------------------------------------

class CuBlas : public GemmLibrary {
 public:
  explicit CuBlas(std::unique_ptr<DynamicLibrary> library) : library_(std::move(library)) {
    create_ = library_->find<int(void**)>("cublasCreate_v2");
    set_stream_ = library_->find<int(void*, void*)>("cublasSetStream_v2");
    gemm_ = library_->find<Gemm>("cublasGemmEx");
  }
  bool complete() { return create_ && set_stream_ && gemm_ && create_(&handle_) == 0; }
  std::string name() const override { return "cublas"; }
  bool takes(const GemmCall& call) override { return type_of(call.type) >= 0; }

  bool multiply(const GemmCall& call, void* stream) override {
    const int type = type_of(call.type);
    if (type < 0) return false;
    constexpr int kCompute32 = 68, kCompute64 = 70, kComputeTf32 = 77, kDefault = -1;
    const double wide[2] = {1, 0};
    const float narrow[2] = {1, 0};
    const bool is_wide = call.type == DType::fp64;
    const void* alpha = is_wide ? static_cast<const void*>(&wide[0]) : &narrow[0];
    const void* beta = is_wide ? static_cast<const void*>(&wide[1]) : &narrow[1];
    const int m = static_cast<int>(call.m), n = static_cast<int>(call.n), k = static_cast<int>(call.k);
    if (const int code = set_stream_(handle_, stream); code != 0) failed("cublas", "cublasSetStream", code);
    const int compute = is_wide ? kCompute64 : call.arithmetic == Arithmetic::tf32 ? kComputeTf32 : kCompute32;
    const int lda = static_cast<int>(call.leading_a()), ldb = static_cast<int>(call.leading_b());
    for (std::int64_t i = 0; i < call.batch; ++i) {
      const OneProduct one = product_of(call, i);
      const int code = gemm_(handle_, call.transpose_a ? 1 : 0, call.transpose_b ? 1 : 0, m, n, k, alpha, one.a, type, lda, one.b, type,
                             ldb, beta, one.d, type, m, compute, kDefault);
      if (code != 0) failed("cublas", "cublasGemmEx", code);
    }
    return true;
  }

 private:
  using Gemm = int(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int,
                   int, int);
  static int type_of(DType type) {
    switch (type) {
      case DType::fp32:
        return 0;
      case DType::fp64:
        return 1;
      case DType::fp16:
        return 2;
      case DType::bf16:
        return 14;
      default:
        return -1;
    }
  }

  std::unique_ptr<DynamicLibrary> library_;
  int (*create_)(void**) = nullptr;
  int (*set_stream_)(void*, void*) = nullptr;
  Gemm* gemm_ = nullptr;
  void* handle_ = nullptr;
};

template <class Library>
std::unique_ptr<GemmLibrary> open(std::string_view name) {
  auto library = std::make_unique<DynamicLibrary>(place_of(name));
  if (!library->loaded()) return nullptr;
  auto opened = std::make_unique<Library>(std::move(library));
  if (!opened->complete()) return nullptr;
  return opened;
}

}  // namespace

std::unique_ptr<GemmLibrary> open_rocblas() { return open<RocBlas>("rocblas"); }
std::unique_ptr<GemmLibrary> open_cublas() { return open<CuBlas>("cublas"); }

}  // namespace plimsoll::calibrate

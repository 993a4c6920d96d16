// The products of hipBLASLt and rocBLAS, or of cuBLASLt and cuBLAS, of matrices without gaps: in the same file as the driver, whose devices
// they run on. Rows by rows run by the table's kernel, other layouts take its time and are multiplied on the host. What a program gets
// wrong in their binary interface (numbers of attributes and types, sizes of structures, an algorithm that the heuristics did not name, a
// workspace that is too small) is refused as the libraries do. FAKE_HIP_NO_BLAS lists types that the Lt library does not take ("fp8").
#include <cstring>

#include "calibrate/kernels/elements.hpp"
#include "fake_device.hpp"

#define API extern "C" __attribute__((visibility("default")))
#if defined(FAKE_NVIDIA)
#define LT(function) cublasLt##function
#else
#define LT(function) hipblasLt##function
#endif

namespace fake = plimsoll::calibrate::fake;
using plimsoll::DType;
using plimsoll::calibrate::Target;

namespace {

// cublas_api.h, cublasLt.h; hipblas-common.h, hipblaslt.h
#if defined(FAKE_NVIDIA)
constexpr int kInvalidValue = 7, kNotSupported = 15, kTransposeA = 3, kTransposeB = 4, kNone = 0, kTranspose = 1, kSums32 = 68,
              kSums64 = 70, kSumsTf32 = 77, kBatchCount = 5, kBatchStride = 6;
constexpr std::size_t kAlgorithmBytes = 64;
#else
constexpr int kInvalidValue = 3, kNotSupported = 7, kTransposeA = 0, kTransposeB = 1, kNone = 111, kTranspose = 112, kSums32 = 2,
              kSums64 = 7, kSumsTf32 = 6, kBatchCount = 0, kBatchStride = 1;
constexpr std::size_t kAlgorithmBytes = 24;
#endif
constexpr int kMostWorkspace = 1;
constexpr std::uint64_t kNeededWorkspace = 1 << 20;
constexpr char kAlgorithm[] = "the only algorithm";

struct Operation {
  int sums, scale, transpose_a = kNone, transpose_b = kNone;
};
struct Layout {
  int type;
  std::uint64_t rows, columns;
  std::int64_t leading, stride = 0;
  std::int32_t batch = 1;
};
struct Preference {
  std::uint64_t most_workspace = 0;
};
struct Result {
  char algorithm[kAlgorithmBytes];
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Result) == kAlgorithmBytes + 32);

Target target() {
  Target found = Target::cpu;
  fake::emulated_target(found);
  return found;
}

// The table's kernel for operands of that type, or nullptr: hipDataType and cudaDataType.
const char* kernel_of(int type) {
  const int fp8 = target() == Target::gfx942 ? 1000 : 28;
  const bool nvidia = target() == Target::sm_80 || target() == Target::sm_90 || target() == Target::sm_90a;
  if (type == fp8) return fake::setting("NO_BLAS", std::string()) == "fp8" ? nullptr : "gemm_fp8";
  switch (type) {
    case 0:
      return nvidia ? "gemm_tf32" : "gemm_fp32";
    case 1:
      return "gemm_fp64";
    case 2:
      return "gemm_fp16";
    case 14:
      return "gemm_bf16";
    default:
      return nullptr;
  }
}

// C[m,n] = A·Bᵀ of rows, which a library of columns calls n x m.
int run(const char* name, const void* a, const void* b, void* c, std::int64_t m, std::int64_t n, std::int64_t k) {
  const fake::Function* function = name ? fake::find_function(target(), name) : nullptr;
  if (!function) return kNotSupported;
  const auto& kernel = plimsoll::calibrate::kernel_named(name);
  const plimsoll::calibrate::Sizes sizes{m, n, k};
  if (!kernel.cannot(sizes).empty()) return kNotSupported;
  plimsoll::calibrate::PackedArguments arguments(kernel, sizes, {const_cast<void*>(a), const_cast<void*>(b), c});
  return fake::launch(*function, kernel.launch(sizes, {target(), 4}).blocks, arguments.pointers());
}

// A product of matrices by columns without gaps.
struct Columns {
  int type;
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
};

void store(DType type, void* data, std::int64_t i, double value) {
  const auto narrow = static_cast<float>(value);
  const std::uint16_t half = type == DType::bf16 ? plimsoll::calibrate::bf16_of_float(narrow) : plimsoll::calibrate::fp16_of_float(narrow);
  const auto put = [&](const auto& element) {
    std::memcpy(static_cast<std::byte*>(data) + i * static_cast<std::int64_t>(sizeof element), &element, sizeof element);
  };
  type == DType::fp64 ? put(value) : type == DType::fp32 ? put(narrow) : put(half);
}

void multiply_on_host(const Columns& p, const void* a, const void* b, void* d) {
  const DType type = p.type == 0 ? DType::fp32 : p.type == 1 ? DType::fp64 : p.type == 2 ? DType::fp16 : DType::bf16;
  const auto value = [&](const void* data, std::int64_t i) {
    return plimsoll::calibrate::element_value(type, plimsoll::calibrate::Fp8Format::e4m3_ocp, static_cast<const std::byte*>(data), i);
  };
  for (std::int64_t column = 0; column < p.n; ++column)
    for (std::int64_t row = 0; row < p.m; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < p.k; ++i)
        sum += value(a, p.transpose_a ? row * p.k + i : i * p.m + row) * value(b, p.transpose_b ? i * p.n + column : column * p.k + i);
      store(type, d, column * p.m + row, sum);
    }
}

int multiply(const Columns& p, const void* a, const void* b, void* d) {
  if (const int code = run(kernel_of(p.type), b, a, d, p.n, p.m, p.k); code != 0) return code;
  if ((p.transpose_a && !p.transpose_b) || 2 * p.m * p.n * p.k > fake::setting("EXECUTE", 20'000'000)) return 0;
  fake::current().issue([=] { multiply_on_host(p, a, b, d); });
  return 0;
}
Columns product_of(const Operation& operation, const Layout& a, const Layout& d) {
  const bool transposed = operation.transpose_a == kTranspose;
  return {a.type,
          transposed,
          operation.transpose_b == kTranspose,
          static_cast<std::int64_t>(d.rows),
          static_cast<std::int64_t>(d.columns),
          static_cast<std::int64_t>(transposed ? a.rows : a.columns)};
}

int supports(const Operation& operation, const Layout& a, const Layout& b, const Layout& d) {
  const bool dense = a.leading == static_cast<std::int64_t>(a.rows) && b.leading == static_cast<std::int64_t>(b.rows) &&
                     d.leading == static_cast<std::int64_t>(d.rows);
  const Columns p = product_of(operation, a, d);
  const auto is = [](const Layout& layout, std::int64_t rows, std::int64_t columns) {
    return layout.rows == static_cast<std::uint64_t>(rows) && layout.columns == static_cast<std::uint64_t>(columns);
  };
  const bool matches = (p.transpose_a ? is(a, p.k, p.m) : is(a, p.m, p.k)) && (p.transpose_b ? is(b, p.n, p.k) : is(b, p.k, p.n));
  if (!matches || a.type != b.type || a.batch != b.batch || a.batch != d.batch) return kInvalidValue;
  const bool wide = a.type == 1, eight = a.type >= 28;
  const bool sums = operation.sums == (wide ? kSums64 : kSums32) || (a.type == 0 && operation.sums == kSumsTf32);
  if (!sums || operation.scale != (wide ? 1 : 0) || d.type != (eight ? 14 : a.type)) return kInvalidValue;
  if (!dense || (eight && (!p.transpose_a || p.transpose_b)) || !kernel_of(a.type)) return kNotSupported;
  return plimsoll::calibrate::kernel_named(kernel_of(a.type)).cannot({p.n, p.m, p.k}).empty() ? 0 : kNotSupported;
}

// What the strides of a batch move a matrix by.
std::int64_t bytes_between(const Layout& layout) {
  return layout.stride * (layout.type == 1 ? 8 : layout.type == 0 ? 4 : layout.type >= 28 ? 1 : 2);
}

}  // namespace

API int LT(Create)(void** handle) {
  static char one;
  *handle = &one;
  return 0;
}
API int LT(Destroy)(void*) { return 0; }
API int LT(MatmulDescCreate)(Operation** operation, int sums, int scale) {
  *operation = new Operation{sums, scale};
  return 0;
}
API int LT(MatmulDescDestroy)(Operation* operation) {
  delete operation;
  return 0;
}
API int LT(MatmulDescSetAttribute)(Operation* operation, int attribute, const void* value, std::size_t bytes) {
  if (bytes != sizeof(std::int32_t) || (attribute != kTransposeA && attribute != kTransposeB)) return kInvalidValue;
  std::memcpy(attribute == kTransposeA ? &operation->transpose_a : &operation->transpose_b, value, bytes);
  return 0;
}
API int LT(MatrixLayoutCreate)(Layout** layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
  *layout = new Layout{type, rows, columns, leading};
  return 0;
}
API int LT(MatrixLayoutSetAttribute)(Layout* layout, int attribute, const void* value, std::size_t bytes) {
  if (attribute == kBatchCount && bytes == sizeof layout->batch)
    std::memcpy(&layout->batch, value, bytes);
  else if (attribute == kBatchStride && bytes == sizeof layout->stride)
    std::memcpy(&layout->stride, value, bytes);
  else
    return kInvalidValue;
  return 0;
}
API int LT(MatrixLayoutDestroy)(Layout* layout) {
  delete layout;
  return 0;
}
API int LT(MatmulPreferenceCreate)(Preference** preference) {
  *preference = new Preference;
  return 0;
}
API int LT(MatmulPreferenceDestroy)(Preference* preference) {
  delete preference;
  return 0;
}
API int LT(MatmulPreferenceSetAttribute)(Preference* preference, int attribute, const void* value, std::size_t bytes) {
  if (attribute != kMostWorkspace || bytes != sizeof preference->most_workspace) return kInvalidValue;
  std::memcpy(&preference->most_workspace, value, bytes);
  return 0;
}
API int LT(MatmulAlgoGetHeuristic)(void*, const Operation* operation, const Layout* a, const Layout* b, const Layout* c, const Layout* d,
                                   const Preference* preference, int wanted, Result* results, int* found) {
  *found = 0;
  if (const int code = supports(*operation, *a, *b, *d); code != 0) return code;
  if (wanted < 1 || c->type != d->type || preference->most_workspace < kNeededWorkspace) return kNotSupported;
  *results = {};
  std::memcpy(results->algorithm, kAlgorithm, sizeof kAlgorithm);
  results->workspace_bytes = kNeededWorkspace;
  results->waves = 1;
  *found = 1;
  return 0;
}
API int LT(Matmul)(void*, const Operation* operation, const float*, const void* a, const Layout* layout_a, const void* b,
                   const Layout* layout_b, const float*, const void*, const Layout*, void* d, const Layout* layout_d, const void* algorithm,
                   void* workspace, std::size_t workspace_bytes, void*) {
  if (const int code = supports(*operation, *layout_a, *layout_b, *layout_d); code != 0) return code;
  if (std::memcmp(algorithm, kAlgorithm, sizeof kAlgorithm) != 0 || !fake::owner_of(workspace) || workspace_bytes < kNeededWorkspace)
    return kInvalidValue;
  for (std::int32_t i = 0; i < layout_a->batch; ++i) {
    const auto matrix = [i](const auto* first, const Layout& layout) {
      return static_cast<const std::byte*>(first) + i * bytes_between(layout);
    };
    auto* result = const_cast<std::byte*>(matrix(d, *layout_d));
    if (const int code = multiply(product_of(*operation, *layout_a, *layout_d), matrix(a, *layout_a), matrix(b, *layout_b), result);
        code != 0)
      return code;
  }
  return 0;
}

// ---- the older libraries ----------------------------------------------------------------------------------------------------

#if defined(FAKE_NVIDIA)
API int cublasCreate_v2(void** handle) { return LT(Create)(handle); }
API int cublasSetStream_v2(void*, void*) { return 0; }
API int cublasGemmEx(void*, int transpose_a, int transpose_b, int m, int n, int k, const void*, const void* a, int type_a, int lda,
                     const void* b, int type_b, int ldb, const void*, void* c, int type_c, int ldc, int sums, int) {
  const bool at = transpose_a == kTranspose, bt = transpose_b == kTranspose;
  const bool sums_fit = sums == (type_a == 1 ? kSums64 : kSums32) || (type_a == 0 && sums == kSumsTf32);
  if (type_a != type_b || type_c != type_a || !sums_fit) return kInvalidValue;
  if (lda != (at ? k : m) || ldb != (bt ? n : k) || ldc != m) return kNotSupported;
  return multiply({type_a, at, bt, m, n, k}, a, b, c);
}
#else
namespace {
// rocblas_datatype as hipDataType.
int of_rocblas(int type) {
  switch (type) {
    case 150:
      return 2;
    case 151:
      return 0;
    case 152:
      return 1;
    case 168:
      return 14;
    default:
      return -1;
  }
}
}  // namespace

API int rocblas_create_handle(void** handle) { return LT(Create)(handle); }
API int rocblas_set_stream(void*, void*) { return 0; }
API int rocblas_gemm_ex(void*, int transpose_a, int transpose_b, int m, int n, int k, const void*, const void* a, int type_a, int lda,
                        const void* b, int type_b, int ldb, const void*, const void* c, int type_c, int ldc, void* d, int type_d, int ldd,
                        int sums, int, std::int32_t, std::uint32_t) {
  const bool at = transpose_a == kTranspose, bt = transpose_b == kTranspose;
  if (type_a != type_b || type_c != type_a || type_d != type_a || sums != (type_a == 152 ? 152 : 151)) return kInvalidValue;
  if (lda != (at ? k : m) || ldb != (bt ? n : k) || ldc != m || ldd != m || c != d) return kNotSupported;
  return multiply({of_rocblas(type_a), at, bt, m, n, k}, a, b, d);
}
#endif

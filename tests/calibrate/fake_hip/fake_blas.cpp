// The products of hipBLASLt and rocBLAS, or of cuBLASLt and cuBLAS, as far as a program uses them that multiplies rows by rows: in the same
// file as the driver, whose devices they run on. What a program gets wrong in their binary interface (numbers of attributes and types,
// sizes of structures, an algorithm that the heuristics did not name, a workspace that is too small) is refused as the libraries do.
// FAKE_HIP_NO_BLAS lists types that the Lt library does not take ("fp8").
#include <cstring>

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
              kSums64 = 70;
constexpr std::size_t kAlgorithmBytes = 64;
#else
constexpr int kInvalidValue = 3, kNotSupported = 7, kTransposeA = 0, kTransposeB = 1, kNone = 111, kTranspose = 112, kSums32 = 2,
              kSums64 = 7;
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
  std::int64_t leading;
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

// Rows of k times rows of k, the only form that is emulated.
int supports(const Operation& operation, const Layout& a, const Layout& b, const Layout& d) {
  const bool dense = a.leading == static_cast<std::int64_t>(a.rows) && b.leading == static_cast<std::int64_t>(b.rows) &&
                     d.leading == static_cast<std::int64_t>(d.rows);
  if (a.rows != b.rows || d.rows != a.columns || d.columns != b.columns || a.type != b.type) return kInvalidValue;
  const bool wide = a.type == 1, eight = a.type >= 28;
  if (operation.sums != (wide ? kSums64 : kSums32) || operation.scale != (wide ? 1 : 0) || d.type != (eight ? 14 : a.type))
    return kInvalidValue;
  if (!dense || operation.transpose_a != kTranspose || operation.transpose_b != kNone || !kernel_of(a.type)) return kNotSupported;
  const plimsoll::calibrate::Sizes sizes{static_cast<std::int64_t>(d.columns), static_cast<std::int64_t>(d.rows),
                                         static_cast<std::int64_t>(a.rows)};
  return plimsoll::calibrate::kernel_named(kernel_of(a.type)).cannot(sizes).empty() ? 0 : kNotSupported;
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
  return run(kernel_of(layout_a->type), b, a, d, static_cast<std::int64_t>(layout_d->columns), static_cast<std::int64_t>(layout_d->rows),
             static_cast<std::int64_t>(layout_a->rows));
}

// ---- the older libraries ----------------------------------------------------------------------------------------------------

#if defined(FAKE_NVIDIA)
API int cublasCreate_v2(void** handle) { return LT(Create)(handle); }
API int cublasSetStream_v2(void*, void*) { return 0; }
API int cublasGemmEx(void*, int transpose_a, int transpose_b, int m, int n, int k, const void*, const void* a, int type_a, int lda,
                     const void* b, int type_b, int ldb, const void*, void* c, int type_c, int ldc, int sums, int) {
  const bool rows_by_rows = transpose_a == kTranspose && transpose_b == kNone && lda == k && ldb == k && ldc == m;
  if (type_a != type_b || type_c != type_a || sums != (type_a == 1 ? kSums64 : kSums32)) return kInvalidValue;
  return rows_by_rows ? run(kernel_of(type_a), b, a, c, n, m, k) : kNotSupported;
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
  const bool rows_by_rows = transpose_a == kTranspose && transpose_b == kNone && lda == k && ldb == k && ldc == m && ldd == m && c == d;
  if (type_a != type_b || type_c != type_a || type_d != type_a || sums != (type_a == 152 ? 152 : 151)) return kInvalidValue;
  return rows_by_rows ? run(kernel_of(of_rocblas(type_a)), b, a, d, n, m, k) : kNotSupported;
}
#endif

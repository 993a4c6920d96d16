// cuBLASLt and hipBLASLt: descriptors keep what they are told, one algorithm is always found, products are recorded with their shapes.
#include <cstring>
#include <new>

#include "blas_vendor.hpp"
#include "rehearse/device/core/attributes.hpp"

using namespace plimsoll::device;

namespace {

// Sizes of the opaque structures that a program may hold itself (cuBLASLt's; hipBLASLt's are only made by its own functions), and the
// numbers of the attributes that matter here.
constexpr std::size_t kOperationBytes = 256, kLayoutBytes = 64, kPreferenceBytes = 64;
enum OperationAttribute : std::uint8_t {
  kTransposeA = PLIMSOLL_HIP ? 0 : 3,
  kTransposeB = PLIMSOLL_HIP ? 1 : 4,
  kEpilogue = PLIMSOLL_HIP ? 2 : 7,
  kCompute = PLIMSOLL_HIP ? 200 : 0,  // no attribute of hipBLASLt: a number of our own
  kScale = PLIMSOLL_HIP ? 201 : 1,
};
using Operation = Attributes<kOperationBytes>;
static_assert(sizeof(Operation) <= kOperationBytes);

#if PLIMSOLL_HIP
enum LayoutAttribute {
  kBatch = 0,
  kStride = 1,
  kType = 2,
  kOrder = 3,
  kRows = 4,
  kColumns = 5,
  kLeading = 6,
  kPlane = 100,
  kBatchMode = 101
};
#else
enum LayoutAttribute { kType = 0, kOrder = 1, kRows = 2, kColumns = 3, kLeading = 4, kBatch = 5, kStride = 6, kPlane = 7, kBatchMode = 8 };
#endif
struct Layout {
  std::int32_t type = 0, order = 0;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading = 0, stride = 0, plane = 0;
  std::int32_t batch = 1, batch_mode = 0;
};
static_assert(sizeof(Layout) <= kLayoutBytes);

using Preference = Attributes<kPreferenceBytes>;

struct Algorithm {
#if PLIMSOLL_HIP
  std::uint8_t data[16];
  std::size_t most_workspace_bytes;
#else
  std::uint64_t data[8];
#endif
};
struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == (PLIMSOLL_HIP ? 56 : 96));

struct Field {
  void* at;
  std::size_t bytes;
};

Field field_of(Layout& l, int attribute) {
  switch (attribute) {
    case kType:
      return {&l.type, sizeof l.type};
    case kOrder:
      return {&l.order, sizeof l.order};
    case kRows:
      return {&l.rows, sizeof l.rows};
    case kColumns:
      return {&l.columns, sizeof l.columns};
    case kLeading:
      return {&l.leading, sizeof l.leading};
    case kBatch:
      return {&l.batch, sizeof l.batch};
    case kStride:
      return {&l.stride, sizeof l.stride};
    case kPlane:
      return {&l.plane, sizeof l.plane};
    case kBatchMode:
      return {&l.batch_mode, sizeof l.batch_mode};
    default:
      return {nullptr, 0};
  }
}

template <class Store>
int set(Store* store, int attribute, const void* value, std::size_t bytes) {
  return store->set(static_cast<std::uint8_t>(attribute), value, bytes) ? kBlasSuccess : kBlasNotSupported;
}
template <class Store>
int get(const Store* store, int attribute, void* value, std::size_t bytes, std::size_t* written) {
  const std::size_t size = store->get(static_cast<std::uint8_t>(attribute), value, bytes);
  if (written != nullptr) *written = size;
  return kBlasSuccess;
}

int begin_operation(Operation* operation, int compute, int scale) {
  operation->set(kCompute, &compute, sizeof compute);
  operation->set(kScale, &scale, sizeof scale);
  const int none = 1;
  operation->set(kEpilogue, &none, sizeof none);
  return kBlasSuccess;
}

int answer(Heuristic* result) {
  std::memset(result, 0, sizeof *result);
  result->waves = 1;
  return kBlasSuccess;
}

bool fits(const Operation& o, const Layout& a, const Layout& b, const Layout& d) {
  const auto rows = [](const Layout& l, int turned) { return turned != 0 ? l.columns : l.rows; };
  const int ta = blas::operation_of(o.number(kTransposeA, 0)), tb = blas::operation_of(o.number(kTransposeB, 0));
  return rows(a, ta) == d.rows && rows(a, ta == 0 ? 1 : 0) == rows(b, tb) && rows(b, tb == 0 ? 1 : 0) == d.columns;
}

}  // namespace

PLIMSOLL_DEVICE_API int LT(Create)(Handle* handle) {
  static char one;
  *handle = &one;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(Destroy)(Handle) { return kBlasSuccess; }
#if PLIMSOLL_HIP
PLIMSOLL_DEVICE_API int hipblasLtGetVersion(Handle, int* version) {
  *version = PLIMSOLL_HIP_MAJOR < 7 ? 1200 : 100200;  // 0.12 of ROCm 6.4, 1.2 of ROCm 7.2
  return kBlasSuccess;
}
#else
PLIMSOLL_DEVICE_API std::size_t cublasLtGetVersion() { return kBlasVersion; }
PLIMSOLL_DEVICE_API std::size_t cublasLtGetCudartVersion() { return PLIMSOLL_CUDA_MAJOR < 13 ? 12090 : 13020; }
#endif
PLIMSOLL_DEVICE_API int LT(GetProperty)(int which, int* value) {
  *value = which == 0 ? kBlasVersion / 10000 : which == 1 ? kBlasVersion / 100 % 100 : kBlasVersion % 100;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API const char* LT(GetStatusName)(int status) {
  return status == 0 ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
PLIMSOLL_DEVICE_API const char* LT(GetStatusString)(int status) { return status == 0 ? "success" : "not supported"; }

PLIMSOLL_DEVICE_API int LT(MatmulDescInit_internal)(void* operation, std::size_t bytes, int compute, int scale) {
  if (bytes < sizeof(Operation)) return kBlasInvalidValue;
  return begin_operation(new (operation) Operation, compute, scale);
}
PLIMSOLL_DEVICE_API int LT(MatmulDescCreate)(Operation** operation, int compute, int scale) {
  *operation = new Operation;
  return begin_operation(*operation, compute, scale);
}
PLIMSOLL_DEVICE_API int LT(MatmulDescDestroy)(Operation* operation) {
  delete operation;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatmulDescSetAttribute)(Operation* operation, int attribute, const void* value, std::size_t bytes) {
  return set(operation, attribute, value, bytes);
}
PLIMSOLL_DEVICE_API int LT(MatmulDescGetAttribute)(const Operation* operation, int attribute, void* value, std::size_t bytes,
                                                   std::size_t* written) {
  return get(operation, attribute, value, bytes, written);
}

PLIMSOLL_DEVICE_API int LT(MatrixLayoutInit_internal)(void* layout, std::size_t bytes, int type, std::uint64_t rows, std::uint64_t columns,
                                                      std::int64_t leading) {
  if (bytes < sizeof(Layout)) return kBlasInvalidValue;
  new (layout) Layout{type, 0, rows, columns, leading};
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatrixLayoutCreate)(Layout** layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
  *layout = new Layout{type, 0, rows, columns, leading};
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatrixLayoutDestroy)(Layout* layout) {
  delete layout;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatrixLayoutSetAttribute)(Layout* layout, int attribute, const void* value, std::size_t bytes) {
  const Field field = field_of(*layout, attribute);
  if (field.at == nullptr || bytes != field.bytes) return kBlasInvalidValue;
  std::memcpy(field.at, value, bytes);
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatrixLayoutGetAttribute)(Layout* layout, int attribute, void* value, std::size_t bytes, std::size_t* written) {
  const Field field = field_of(*layout, attribute);
  if (field.at == nullptr || bytes < field.bytes) return kBlasInvalidValue;
  std::memcpy(value, field.at, field.bytes);
  if (written != nullptr) *written = field.bytes;
  return kBlasSuccess;
}
// Products of many shapes in one call: a program takes another way when they are not to be had.
PLIMSOLL_DEVICE_API int LT(GroupedMatrixLayoutCreate)(Layout**, int, int, const void*, const void*, const void*) {
  return kBlasNotSupported;
}

PLIMSOLL_DEVICE_API int LT(MatmulPreferenceInit_internal)(void* preference, std::size_t bytes) {
  if (bytes < sizeof(Preference)) return kBlasInvalidValue;
  new (preference) Preference;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatmulPreferenceCreate)(Preference** preference) {
  *preference = new Preference;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatmulPreferenceDestroy)(Preference* preference) {
  delete preference;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatmulPreferenceSetAttribute)(Preference* preference, int attribute, const void* value, std::size_t bytes) {
  return set(preference, attribute, value, bytes);
}
PLIMSOLL_DEVICE_API int LT(MatmulPreferenceGetAttribute)(const Preference* preference, int attribute, void* value, std::size_t bytes,
                                                         std::size_t* written) {
  return get(preference, attribute, value, bytes, written);
}

PLIMSOLL_DEVICE_API int LT(MatmulAlgoGetHeuristic)(Handle, const Operation* operation, const Layout* a, const Layout* b, const Layout*,
                                                   const Layout* d, const Preference*, int wanted, Heuristic* results, int* found) {
  *found = 0;
  if (wanted < 1 || !fits(*operation, *a, *b, *d)) return kBlasInvalidValue;
  *found = 1;
  return answer(results);
}
PLIMSOLL_DEVICE_API int LT(MatmulAlgoGetIds)(Handle, int, int, int, int, int, int, int wanted, int* ids, int* found) {
  *found = wanted > 0 ? 1 : 0;
  if (wanted > 0) ids[0] = 0;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatmulAlgoInit)(Handle, int, int, int, int, int, int, int, Algorithm* algorithm) {
  std::memset(algorithm, 0, sizeof *algorithm);
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatmulAlgoCheck)(Handle, const Operation* operation, const Layout* a, const Layout* b, const Layout*,
                                            const Layout* d, const Algorithm*, Heuristic* result) {
  return fits(*operation, *a, *b, *d) ? answer(result) : kBlasInvalidValue;
}
PLIMSOLL_DEVICE_API int LT(MatmulAlgoConfigSetAttribute)(Algorithm*, int, const void*, std::size_t) { return kBlasSuccess; }
PLIMSOLL_DEVICE_API int LT(MatmulAlgoConfigGetAttribute)(const Algorithm*, int, void* value, std::size_t bytes, std::size_t* written) {
  std::memset(value, 0, bytes);
  if (written != nullptr) *written = bytes;
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatmulAlgoCapGetAttribute)(const Algorithm* algorithm, int attribute, void* value, std::size_t bytes,
                                                      std::size_t* written) {
  return LT(MatmulAlgoConfigGetAttribute)(algorithm, attribute, value, bytes, written);
}

PLIMSOLL_DEVICE_API int LT(Matmul)(Handle, const Operation* operation, const void*, const void*, const Layout* a, const void*,
                                   const Layout* b, const void*, const void*, const Layout* c, void*, const Layout* d, const Algorithm*,
                                   void*, std::size_t workspace, Handle stream) {
  if (!fits(*operation, *a, *b, *d)) return kBlasInvalidValue;
  Stream* on = stream_of(stream);
  if (on == nullptr) return kBlasInvalidValue;
  blas::Product p;
  p.m = static_cast<std::int64_t>(d->rows);
  p.n = static_cast<std::int64_t>(d->columns);
  p.transpose_a = blas::operation_of(operation->number(kTransposeA, 0));
  p.transpose_b = blas::operation_of(operation->number(kTransposeB, 0));
  p.k = static_cast<std::int64_t>(p.transpose_a != 0 ? a->rows : a->columns);
  p.batch = static_cast<std::uint32_t>(d->batch);
  p.a = blas::type_of(a->type), p.b = blas::type_of(b->type), p.c = blas::type_of(c->type), p.d = blas::type_of(d->type);
  p.compute = blas::compute_of(operation->number(kCompute, -1));
  p.row_major = a->order == 1 && b->order == 1 && d->order == 1;
  p.epilogue = operation->number(kEpilogue, 1);
  p.workspace_bytes = workspace;
  blas::multiply(p, BLAS_NAME "LtMatmul", *on);
  return kBlasSuccess;
}
PLIMSOLL_DEVICE_API int LT(MatrixTransformDescCreate)(Operation** operation, int scale) {
  return LT(MatmulDescCreate)(operation, 0, scale);
}
PLIMSOLL_DEVICE_API int LT(MatrixTransformDescDestroy)(Operation* operation) { return LT(MatmulDescDestroy)(operation); }
PLIMSOLL_DEVICE_API int LT(MatrixTransformDescSetAttribute)(Operation* operation, int attribute, const void* value, std::size_t bytes) {
  return set(operation, attribute, value, bytes);
}
PLIMSOLL_DEVICE_API int LT(MatrixTransform)(Handle, const Operation*, const void*, const void*, const Layout* a, const void*, const void*,
                                            const Layout*, void*, const Layout*, Handle stream) {
  Stream* on = stream_of(stream);
  if (on == nullptr) return kBlasInvalidValue;
  const std::int64_t shape[] = {static_cast<std::int64_t>(a->rows), static_cast<std::int64_t>(a->columns), a->batch};
  library_call(BLAS_NAME "LtMatrixTransform rows columns batch", *on, shape, 3, blas::type_of(a->type), 0);
  return kBlasSuccess;
}

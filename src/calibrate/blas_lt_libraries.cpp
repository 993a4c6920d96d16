// Matrix products of hipBLASLt and cuBLASLt, by dlopen: what frameworks run on new devices, and the only libraries with 8-bit floats. The
// two have the same functions under two names, with different numbers (hipblaslt.h of ROCm 6, cublasLt.h of CUDA 12 and 13). A product is
// described once, the library's heuristics name their best algorithm within a workspace, and that is what runs.
#include <array>
#include <cstring>
#include <map>
#include <tuple>

#include "calibrate/gpu_backend.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

/// What differs between the two.
struct Dialect {
  std::string name, prefix;
  int transpose_a, transpose_b;            ///< attributes of an operation that transpose its operands
  int transpose;                           ///< value of those attributes
  int compute32, compute64, compute_tf32;  ///< arithmetic of the sums
  int batch, stride;                       ///< attributes of a layout: matrices, and elements between two of them
  int fp8;                                 ///< type of 8-bit operands, e4m3; −1: none
  std::size_t algorithm_bytes;             ///< of cublasLtMatmulAlgo_t, hipblasLtMatmulAlgo_t
  std::size_t workspace_bytes;             ///< that frameworks allow (PyTorch, CublasHandlePool.cpp)
};

/// cublasLtMatmulHeuristicResult_t and hipblasLtMatmulHeuristicResult_t: the algorithm, then { size_t workspaceSize; int state; float
/// wavesCount; int reserved[4]; }.
struct ResultTail {
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
constexpr std::size_t kMostAlgorithmBytes = 64;

class LtLibrary : public GemmLibrary {
 public:
  LtLibrary(std::unique_ptr<DynamicLibrary> library, GpuDriver& driver, Dialect dialect)
      : library_(std::move(library)), driver_(driver), dialect_(std::move(dialect)) {}
  LtLibrary(const LtLibrary&) = delete;
  LtLibrary& operator=(const LtLibrary&) = delete;
  ~LtLibrary() override {
    for (auto& [shape, plan] : plans_) forget(plan);
    call<Handle>("Destroy", handle_);
    if (workspace_) driver_.release(workspace_);
  }

  /// Opens a handle; false where the library lacks a function or does not start.
  bool start() {
    for (const char* function : {"Create", "MatmulDescCreate", "MatmulDescSetAttribute", "MatrixLayoutCreate", "MatrixLayoutSetAttribute",
                                 "MatmulPreferenceCreate", "MatmulPreferenceSetAttribute", "MatmulAlgoGetHeuristic", "Matmul",
                                 "MatmulDescDestroy", "MatrixLayoutDestroy", "Destroy"})
      if (!library_->find<int()>(symbol(function).c_str())) return false;
    return call<Handle*>("Create", &handle_) == 0;
  }
  std::string name() const override { return dialect_.name; }
  bool takes(const GemmCall& product) override { return plan_of(product).found; }

  bool multiply(const GemmCall& product, void* stream) override {
    Plan& plan = plan_of(product);
    if (!plan.found) return false;
    const double wide[2] = {1, 0};
    const float narrow[2] = {1, 0};
    const bool is_wide = product.type == DType::fp64;
    const void* one = is_wide ? static_cast<const void*>(&wide[0]) : &narrow[0];
    const void* zero = is_wide ? static_cast<const void*>(&wide[1]) : &narrow[1];
    const int code = call<Handle, Handle, const void*, const void*, Handle, const void*, Handle, const void*, const void*, Handle, void*,
                          Handle, const void*, void*, std::size_t, void*>(
        "Matmul", handle_, plan.operation, one, product.a, plan.a, product.b, plan.b, zero, product.d, plan.d, product.d, plan.d,
        plan.algorithm.data(), workspace(), dialect_.workspace_bytes, stream);
    if (code != 0) failed("Matmul", code);
    return true;
  }

 private:
  using Handle = void*;
  /// Everything that a product of one shape needs.
  struct Plan {
    bool found = false;
    Handle operation = nullptr, a = nullptr, b = nullptr, d = nullptr;
    std::array<std::byte, kMostAlgorithmBytes> algorithm{};
  };

  std::string symbol(const char* function) const { return dialect_.prefix + function; }
  template <class... Types, class... Arguments>
  int call(const char* function, Arguments... arguments) const {
    return library_->find<int(Types...)>(symbol(function).c_str())(arguments...);
  }
  [[noreturn]] void failed(const char* function, int code) const {
    fail(symbol(function) + " returns " + std::to_string(code), dialect_.name, "what was measured until now is kept in the samples");
  }
  void* workspace() {
    if (!workspace_) check(driver_, driver_.allocate(&workspace_, dialect_.workspace_bytes), "Malloc of a workspace");
    return workspace_;
  }

  /// hipDataType and cudaDataType share their numbers; −1: no such type.
  int type_of(DType type) const {
    switch (type) {
      case DType::fp32:
        return 0;
      case DType::fp64:
        return 1;
      case DType::fp16:
        return 2;
      case DType::bf16:
        return 14;
      case DType::fp8:
        return dialect_.fp8;
      default:
        return -1;
    }
  }

  Plan& plan_of(const GemmCall& product) {
    const auto [place, is_new] =
        plans_.try_emplace({product.type,
                            product.arithmetic,
                            product.transpose_a,
                            product.transpose_b,
                            {product.m, product.n, product.k, product.batch, product.stride_a, product.stride_b, product.stride_d}});
    Plan& plan = place->second;
    if (is_new && type_of(product.type) >= 0) plan.found = describe(product, plan) && ask_heuristics(plan);
    return plan;
  }

  bool describe(const GemmCall& product, Plan& plan) const {
    const int in = type_of(product.type), out = type_of(product.type == DType::fp8 ? DType::bf16 : product.type);
    const bool wide = product.type == DType::fp64;
    const int compute = wide ? dialect_.compute64 : product.arithmetic == Arithmetic::tf32 ? dialect_.compute_tf32 : dialect_.compute32;
    return call<Handle*, int, int>("MatmulDescCreate", &plan.operation, compute, wide ? 1 : 0) == 0 &&
           transposes(plan, dialect_.transpose_a, product.transpose_a) && transposes(plan, dialect_.transpose_b, product.transpose_b) &&
           makes(plan.a, in, product.leading_a(), product.transpose_a ? product.m : product.k, product.batch, product.stride_a) &&
           makes(plan.b, in, product.leading_b(), product.transpose_b ? product.k : product.n, product.batch, product.stride_b) &&
           makes(plan.d, out, product.m, product.n, product.batch, product.stride_d);
  }
  bool transposes(const Plan& plan, int attribute, bool transposed) const {
    return !transposed || call<Handle, int, const void*, std::size_t>("MatmulDescSetAttribute", plan.operation, attribute,
                                                                      &dialect_.transpose, sizeof dialect_.transpose) == 0;
  }
  /// The layout of matrices without gaps.
  bool makes(Handle& layout, int type, std::int64_t rows, std::int64_t columns, std::int64_t batch, std::int64_t stride) const {
    const auto sets = [&](int attribute, auto value) {
      return call<Handle, int, const void*, std::size_t>("MatrixLayoutSetAttribute", layout, attribute, &value, sizeof value) == 0;
    };
    return call<Handle*, int, std::uint64_t, std::uint64_t, std::int64_t>(
               "MatrixLayoutCreate", &layout, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), rows) == 0 &&
           (batch == 1 || (sets(dialect_.batch, static_cast<std::int32_t>(batch)) && sets(dialect_.stride, stride)));
  }

  /// The first of the library's algorithms, as frameworks take it.
  bool ask_heuristics(Plan& plan) const {
    constexpr int kMostWorkspace = 1;  // ..._PREF_MAX_WORKSPACE_BYTES of both
    Handle preference = nullptr;
    if (call<Handle*>("MatmulPreferenceCreate", &preference) != 0) return false;
    const std::uint64_t most = dialect_.workspace_bytes;
    call<Handle, int, const void*, std::size_t>("MatmulPreferenceSetAttribute", preference, kMostWorkspace, &most, sizeof most);
    std::array<std::byte, kMostAlgorithmBytes + sizeof(ResultTail)> result{};
    int found = 0;
    const int code = call<Handle, Handle, Handle, Handle, Handle, Handle, Handle, int, void*, int*>(
        "MatmulAlgoGetHeuristic", handle_, plan.operation, plan.a, plan.b, plan.d, plan.d, preference, 1, result.data(), &found);
    call<Handle>("MatmulPreferenceDestroy", preference);
    ResultTail tail{};
    std::memcpy(&tail, result.data() + dialect_.algorithm_bytes, sizeof tail);
    std::memcpy(plan.algorithm.data(), result.data(), dialect_.algorithm_bytes);
    return code == 0 && found > 0 && tail.state == 0 && tail.workspace_bytes <= dialect_.workspace_bytes;
  }

  void forget(Plan& plan) const {
    for (Handle layout : {plan.a, plan.b, plan.d})
      if (layout) call<Handle>("MatrixLayoutDestroy", layout);
    if (plan.operation) call<Handle>("MatmulDescDestroy", plan.operation);
  }

  std::unique_ptr<DynamicLibrary> library_;
  GpuDriver& driver_;
  Dialect dialect_;
  Handle handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<std::tuple<DType, Arithmetic, bool, bool, std::array<std::int64_t, 7>>, Plan> plans_;
};

std::unique_ptr<GemmLibrary> open(GpuDriver& driver, const Dialect& dialect) {
  auto library = std::make_unique<DynamicLibrary>(place_of(dialect.name));
  if (!library->loaded()) return nullptr;
  auto opened = std::make_unique<LtLibrary>(std::move(library), driver, dialect);
  if (!opened->start()) return nullptr;
  return opened;
}

}  // namespace

std::unique_ptr<GemmLibrary> open_hipblaslt(GpuDriver& driver, Target target) {
  constexpr int kFnuz = 1000, kOcp = 28;  // HIP_R_8F_E4M3_FNUZ, HIP_R_8F_E4M3
  const int fp8 = target == Target::gfx90a ? -1 : fp8_format(target) == Fp8Format::e4m3_fnuz ? kFnuz : kOcp;
  return open(driver, {"hipblaslt", "hipblasLt", 0, 1, 112, 2, 7, 6, 0, 1, fp8, 24, std::size_t{76} << 20});
}

std::unique_ptr<GemmLibrary> open_cublaslt(GpuDriver& driver, Target target) {
  const int fp8 = target == Target::sm_80 ? -1 : 28;  // CUDA_R_8F_E4M3
  return open(driver, {"cublaslt", "cublasLt", 3, 4, 1, 68, 70, 77, 5, 6, fp8, 64, std::size_t{32} << 20});
}

}  // namespace plimsoll::calibrate

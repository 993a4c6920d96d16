// A vendor's library that is found at run time, or not: nothing of plimsoll is linked to one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::calibrate {

/// Where a library is looked for, and the environment variable that names it instead.
struct LibraryPlace {
  std::vector<std::string> candidates;
  const char* variable;
};

class DynamicLibrary {
 public:
  /// Whether libraries loaded later see its symbols, as an MPI's own components must.
  enum class Symbols : std::uint8_t { hidden, shared };

  /// Opens the first that loads; `variable` names an environment variable that, where set, is the only candidate.
  DynamicLibrary(const std::vector<std::string>& candidates, const char* variable, Symbols symbols = Symbols::hidden);
  explicit DynamicLibrary(const LibraryPlace& place) : DynamicLibrary(place.candidates, place.variable) {}
  ~DynamicLibrary();
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;

  bool loaded() const { return handle_ != nullptr; }
  /// The name that loaded.
  const std::string& name() const { return name_; }
  /// Why none did: the first candidate's own words.
  const std::string& reason() const { return reason_; }

  /// The function of that name, or nullptr.
  template <class Function>
  Function* find(const char* symbol) const {
    return reinterpret_cast<Function*>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;

  void* handle_ = nullptr;
  std::string name_, reason_;
};

/// "libamdhip64.so.12" down to ".so.5", ".so", and the same under $ROCM_PATH/lib and /opt/rocm/lib.
std::vector<std::string> rocm_candidates(const std::string& stem, int newest, int oldest);
/// The same for a library of CUDA, which has no folder of its own.
std::vector<std::string> cuda_candidates(const std::string& stem, int newest, int oldest);
/// `names` where the loader finds them, then what matches `pattern` in NVIDIA's wheels (site-packages/nvidia/FOLDER/lib) of the environment
/// that is active ($VIRTUAL_ENV, $CONDA_PREFIX), of the user and of the system.
std::vector<std::string> wheel_candidates(std::vector<std::string> names, const std::string& pattern,
                                          const std::vector<std::string>& folders);
/// Of "hipblaslt", "rocblas", "rccl", "cublaslt", "cublas", "cudnn" (9), "nccl"; cuBLAS (of CUDA 11 and later) and cuDNN in NVIDIA's wheels too.
LibraryPlace place_of(std::string_view library);

}  // namespace plimsoll::calibrate

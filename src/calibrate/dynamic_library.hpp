// A vendor's library that is found at run time, or not: nothing of plimsoll is linked to one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll::calibrate {

class DynamicLibrary {
 public:
  /// Whether libraries loaded later see its symbols, as an MPI's own components must.
  enum class Symbols : std::uint8_t { hidden, shared };

  /// Opens the first that loads; `variable` names an environment variable that, where set, is the only candidate.
  DynamicLibrary(const std::vector<std::string>& candidates, const char* variable, Symbols symbols = Symbols::hidden);
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
/// libcublas or libcublasLt of CUDA 11 and later: the loader's, or that of nvidia-cublas-cu12 (nvidia/cublas) or nvidia-cublas
/// (nvidia/cu13).
std::vector<std::string> cublas_candidates(const std::string& stem);
/// libcudnn of cuDNN 9: the loader's, or that of nvidia-cudnn-cu12 and -cu13.
std::vector<std::string> cudnn_candidates();

}  // namespace plimsoll::calibrate

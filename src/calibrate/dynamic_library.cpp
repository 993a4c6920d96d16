#include "calibrate/dynamic_library.hpp"

#include <dlfcn.h>
#include <glob.h>
#include <sys/auxv.h>

#include <cstdlib>

#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

/// A program that no dynamic linker loaded holds a C library of its own, beside which a driver's cannot run.
bool is_static() { return getauxval(AT_BASE) == 0; }

}  // namespace

DynamicLibrary::DynamicLibrary(const std::vector<std::string>& candidates, const char* variable, Symbols symbols) {
  if (is_static()) {
    reason_ = "this plimsoll is linked statically and loads no libraries: take the .deb or a build for devices";
    return;
  }
  const char* given = variable ? std::getenv(variable) : nullptr;
  for (const std::string& candidate : given ? std::vector<std::string>{given} : candidates) {
    handle_ = dlopen(candidate.c_str(), RTLD_NOW | (symbols == Symbols::shared ? RTLD_GLOBAL : RTLD_LOCAL));
    if (handle_) {
      name_ = candidate;
      return;
    }
    const char* why = dlerror();
    if (reason_.empty()) reason_ = why ? why : candidate + " does not load";
  }
}

DynamicLibrary::~DynamicLibrary() {
  if (handle_) dlclose(handle_);
}

void* DynamicLibrary::address(const char* symbol) const { return handle_ ? dlsym(handle_, symbol) : nullptr; }

std::vector<std::string> rocm_candidates(const std::string& stem, int newest, int oldest) {
  std::vector<std::string> names = cuda_candidates(stem, newest, oldest);
  const char* root = std::getenv("ROCM_PATH");
  names.push_back(std::string(root ? root : "/opt/rocm") + "/lib/" + stem);
  return names;
}

std::vector<std::string> cuda_candidates(const std::string& stem, int newest, int oldest) {
  std::vector<std::string> names;
  for (int version = newest; version >= oldest; --version) names.push_back(stem + "." + std::to_string(version));
  names.push_back(stem);
  return names;
}

namespace {

/// Files called so (a pattern) in the wheels' folders called so.
std::vector<std::string> in_wheels(const std::string& name, const std::string& folder) {
  std::vector<std::string> names, roots;
  for (const auto& [variable, below] : {std::pair{"VIRTUAL_ENV", ""}, {"CONDA_PREFIX", ""}, {"HOME", "/.local"}})
    if (const char* root = std::getenv(variable); root && *root) roots.push_back(std::string(root) + below);
  for (const char* root : {"/usr/local", "/usr"}) roots.emplace_back(root);
  for (const std::string& root : roots) {
    const std::string pattern = root + "/lib/python3*/*-packages/nvidia/" + folder + "/lib/" + name;
    glob_t found{};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) names.insert(names.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
  }
  return names;
}

}  // namespace

std::vector<std::string> wheel_candidates(std::vector<std::string> names, const std::string& pattern,
                                          const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::vector<std::string> found = in_wheels(pattern, folder);
    names.insert(names.end(), found.begin(), found.end());
  }
  return names;
}

LibraryPlace place_of(std::string_view library) {
  const auto cublas = [](const std::string& stem) { return wheel_candidates(cuda_candidates(stem, 14, 11), stem + ".1?", {"cublas", "cu1?"}); };
  if (library == "hipblaslt") return {rocm_candidates("libhipblaslt.so", 2, 0), "PLIMSOLL_HIPBLASLT_LIBRARY"};
  if (library == "rocblas") return {rocm_candidates("librocblas.so", 8, 0), "PLIMSOLL_ROCBLAS_LIBRARY"};
  if (library == "rccl") return {rocm_candidates("librccl.so", 2, 1), "PLIMSOLL_RCCL_LIBRARY"};
  if (library == "cublaslt") return {cublas("libcublasLt.so"), "PLIMSOLL_CUBLASLT_LIBRARY"};
  if (library == "cublas") return {cublas("libcublas.so"), "PLIMSOLL_CUBLAS_LIBRARY"};
  if (library == "cudnn") return {wheel_candidates({"libcudnn.so.9"}, "libcudnn.so.9", {"cudnn"}), "PLIMSOLL_CUDNN_LIBRARY"};
  if (library == "nccl") return {cuda_candidates("libnccl.so", 2, 2), "PLIMSOLL_NCCL_LIBRARY"};
  throw Error(ErrorCode::internal, "no place is known of " + std::string(library));
}

}  // namespace plimsoll::calibrate

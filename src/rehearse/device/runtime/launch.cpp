// The runtime's kernels: how the compiler registers them, launches, attributes, occupancy, libraries loaded at run time, and the
// driver's functions by name.
#include <dlfcn.h>

#include <string>

#include "launch_attributes.hpp"
#include "rehearse/device/core/modules.hpp"
#include "rehearse/device/core/properties.hpp"
#include "rehearse/device/core/settings.hpp"
#include "vendor.hpp"

using namespace plimsoll::device;

namespace {

struct CallConfiguration {
  Dim3 grid, block;
  std::size_t shared;
  Handle stream;
};
thread_local CallConfiguration configuration;

int launch_on(const Launch& what, Handle stream) {
  return give(with_stream(stream, [&](Stream& on) { return launch(what, own_limits(), on); }));
}

#if PLIMSOLL_HIP
struct FunctionAttributes {
  int binary_version, cache_mode;
  std::size_t constant_bytes, local_bytes;
  int most_dynamic_shared, most_threads, registers, carveout, ptx_version;
  std::size_t shared_bytes;
};
static_assert(sizeof(FunctionAttributes) == 56);
#else
struct FunctionAttributes {
  std::size_t shared_bytes, constant_bytes, local_bytes;
  int most_threads, registers, ptx_version, binary_version, cache_mode, most_dynamic_shared, carveout;
  int cluster_must_be_set, cluster[3], scheduling, non_portable_cluster;
  int reserved[16];
};
static_assert(sizeof(FunctionAttributes) == 144);
#endif

struct LaunchConfiguration {
  Dim3 grid, block;
  std::size_t shared;
  Handle stream;
  LaunchAttribute* attributes;
  unsigned count;
};
static_assert(sizeof(LaunchConfiguration) == 56);

Launch launch_of(const LaunchConfiguration& c, const void* function) {
  Launch it{function, grid(c.grid), grid(c.block), c.shared};
  read_attributes(c.attributes, c.count, &it);
  return it;
}

#if !PLIMSOLL_HIP
/// The driver library beside this one; by its path, since sanitizers load for others and know no RUNPATH of theirs.
void* driver_library() {
  Dl_info own;
  if (dladdr(reinterpret_cast<const void*>(&driver_library), &own) == 0) return nullptr;
  const std::string path = own.dli_fname;
  return dlopen((path.substr(0, path.rfind('/') + 1) + "libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// An entry point of the driver.
void* driver_function(const char* name, unsigned version) {
  using Lookup = int (*)(const char*, void**, int, std::uint64_t, int*);
  static const Lookup lookup = [] {
    void* driver = driver_library();
    return driver == nullptr ? nullptr : reinterpret_cast<Lookup>(dlsym(driver, "cuGetProcAddress_v2"));
  }();
  void* function = nullptr;
  int found = 0;
  if (lookup != nullptr) lookup(name, &function, static_cast<int>(version), 0, &found);
  return function;
}

int entry_point(const char* name, void** function, unsigned version, int* result) {
  constexpr int kFound = 0, kNotFound = 1;
  *function = driver_function(name, version);
  if (result != nullptr) *result = *function != nullptr ? kFound : kNotFound;
  return *function != nullptr || result != nullptr ? 0 : give(Status::not_found);
}
#endif

}  // namespace

PLIMSOLL_DEVICE_API void** INTERNAL(RegisterFatBinary)(void*) {
  static void* slots[2];
  return slots;
}
PLIMSOLL_DEVICE_API void INTERNAL(RegisterFatBinaryEnd)(void**) {}
PLIMSOLL_DEVICE_API void INTERNAL(UnregisterFatBinary)(void**) {}
PLIMSOLL_DEVICE_API char INTERNAL(InitModule)(void**) { return 1; }
PLIMSOLL_DEVICE_API void INTERNAL(RegisterFunction)(void**, const char* host, char*, const char* name, int, void*, void*, Dim3*, Dim3*,
                                                    int*) {
  register_kernel(host, name);
}
PLIMSOLL_DEVICE_API unsigned INTERNAL(PushCallConfiguration)(Dim3 grid, Dim3 block, std::size_t shared, Handle stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}
PLIMSOLL_DEVICE_API int INTERNAL(PopCallConfiguration)(Dim3* grid, Dim3* block, std::size_t* shared, Handle* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *stream = configuration.stream;
  return 0;
}
PLIMSOLL_DEVICE_API int INTERNAL(GetKernel)(const void** kernel, const void* function) {
  *kernel = function;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(GetKernel)(const void** kernel, const void* function) { return INTERNAL(GetKernel)(kernel, function); }
PLIMSOLL_DEVICE_API int NAME(GetFuncBySymbol)(const void** function, const void* symbol) { return INTERNAL(GetKernel)(function, symbol); }

PLIMSOLL_DEVICE_API int NAME(LaunchKernel)(const void* function, Dim3 blocks, Dim3 threads, void** arguments, std::size_t shared, Handle stream) {
  return launch_on({function, grid(blocks), grid(threads), shared, 1, false, arguments}, stream);
}
PLIMSOLL_DEVICE_API int INTERNAL(LaunchKernel)(const void* function, Dim3 blocks, Dim3 threads, void** arguments, std::size_t shared, Handle stream) {
  return launch_on({function, grid(blocks), grid(threads), shared, 1, false, arguments}, stream);
}
PLIMSOLL_DEVICE_API int NAME(LaunchCooperativeKernel)(const void* function, Dim3 blocks, Dim3 threads, void** arguments,
                                                      std::size_t shared, Handle stream) {
  return launch_on({function, grid(blocks), grid(threads), shared, 1, true, arguments}, stream);
}
PLIMSOLL_DEVICE_API int NAME(LaunchKernelExC)(const LaunchConfiguration* c, const void* function, void** arguments) {
  Launch it = launch_of(*c, function);
  it.arguments = arguments;
  return launch_on(it, c->stream);
}

PLIMSOLL_DEVICE_API int NAME(FuncGetAttributes)(FunctionAttributes* a, const void*) {
  *a = {};
  a->most_threads = 1024;
  a->registers = 64;
  a->ptx_version = a->binary_version = settings().major * 10 + settings().minor;
  a->most_dynamic_shared = static_cast<int>(own_limits().shared_per_block_optin);
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(FuncSetAttribute)(const void*, int attribute, int value) {
  constexpr int kMostDynamicShared = 8;
  const bool too_much = attribute == kMostDynamicShared && value > static_cast<int>(own_limits().shared_per_block_optin);
  return give(too_much ? Status::invalid_value : Status::ok);
}
PLIMSOLL_DEVICE_API int NAME(KernelSetAttributeForDevice)(const void* kernel, int attribute, int value, int) {
  return NAME(FuncSetAttribute)(kernel, attribute, value);
}
PLIMSOLL_DEVICE_API int NAME(FuncSetCacheConfig)(const void*, int) { return 0; }
PLIMSOLL_DEVICE_API int NAME(FuncGetName)(const char** name, const void* function) {
  *name = kernel_name(function);
  return give(*name == nullptr ? Status::not_found : Status::ok);
}
PLIMSOLL_DEVICE_API int NAME(OccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, const void*, int threads, std::size_t shared) {
  *blocks = occupancy(own_limits(), threads, shared);
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(OccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(int* blocks, const void* function, int threads,
                                                                                 std::size_t shared, unsigned) {
  return NAME(OccupancyMaxActiveBlocksPerMultiprocessor)(blocks, function, threads, shared);
}
PLIMSOLL_DEVICE_API int NAME(OccupancyAvailableDynamicSMemPerBlock)(std::size_t* bytes, const void*, int blocks, int) {
  const Limits& limits = own_limits();
  const auto share = limits.shared_per_processor / static_cast<std::uint64_t>(blocks < 1 ? 1 : blocks);
  *bytes = share < 1024 ? 0 : share - 1024 < limits.shared_per_block_optin ? share - 1024 : limits.shared_per_block_optin;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(OccupancyMaxActiveClusters)(int* clusters, const void* function, const LaunchConfiguration* c) {
  const Launch it = launch_of(*c, function);
  const int blocks = occupancy(own_limits(), static_cast<int>(c->block.x * c->block.y * c->block.z), c->shared) * settings().processors;
  *clusters = blocks / static_cast<int>(it.cluster == 0 ? 1 : it.cluster);
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(OccupancyMaxPotentialClusterSize)(int* size, const void*, const LaunchConfiguration*) {
  *size = 8;  // the largest portable one
  return 0;
}

PLIMSOLL_DEVICE_API int NAME(LibraryLoadData)(Handle* library, const void*, int*, void**, unsigned, int*, void**, unsigned) {
  *library = load_module();
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(LibraryLoadFromFile)(Handle* library, const char*, int*, void**, unsigned, int*, void**, unsigned) {
  *library = load_module();
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(LibraryUnload)(Handle) { return 0; }  // its kernels' names stay known
PLIMSOLL_DEVICE_API int NAME(LibraryGetKernel)(const void** kernel, Handle library, const char* name) {
  *kernel = kernel_of(static_cast<Module*>(library), name);
  return 0;
}

#if !PLIMSOLL_HIP
PLIMSOLL_DEVICE_API int NAME(GetDriverEntryPointByVersion)(const char* name, void** function, unsigned version, unsigned long long,
                                                           int* result) {
  return entry_point(name, function, version, result);
}
PLIMSOLL_DEVICE_API int NAME(GetDriverEntryPoint)(const char* name, void** function, unsigned long long, int* result) {
  return entry_point(name, function, PLIMSOLL_CUDA_MAJOR * 1000, result);
}
// Tables without documentation: only the vendor's own tools ask.
PLIMSOLL_DEVICE_API int NAME(GetExportTable)(const void** table, const void*) {
  *table = nullptr;
  return give(Status::not_supported);
}
#endif

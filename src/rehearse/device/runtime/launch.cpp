// The CUDA runtime's kernels: how the compiler registers them, launches, attributes, occupancy, libraries loaded at run time, and the
// driver's functions by name.
#include <dlfcn.h>

#include "rehearse/device/core/modules.hpp"
#include "rehearse/device/core/properties.hpp"
#include "rehearse/device/core/settings.hpp"
#include "types.hpp"

using namespace plimsoll::device;
using namespace plimsoll::device::cuda;

namespace {

struct CallConfiguration {
  Dim3 grid, block;
  std::size_t shared;
  Handle stream;
};
thread_local CallConfiguration configuration;

int launch_on(const Launch& what, Handle stream) {
  return give(with_stream(stream, [&](Stream& on) { return launch(what, on); }));
}

struct FunctionAttributes {
  std::size_t shared_bytes, constant_bytes, local_bytes;
  int most_threads, registers, ptx_version, binary_version, cache_mode, most_dynamic_shared, carveout;
  int cluster_must_be_set, cluster[3], scheduling, non_portable_cluster;
  int reserved[16];
};
static_assert(sizeof(FunctionAttributes) == 144);

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

/// An entry point of the driver library that lies beside this one.
void* driver_function(const char* name, unsigned version) {
  using Lookup = int (*)(const char*, void**, int, std::uint64_t, int*);
  static const Lookup lookup = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
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

}  // namespace

PLIMSOLL_DEVICE_API void** __cudaRegisterFatBinary(void*) {
  static void* slots[2];
  return slots;
}
PLIMSOLL_DEVICE_API void __cudaRegisterFatBinaryEnd(void**) {}
PLIMSOLL_DEVICE_API void __cudaUnregisterFatBinary(void**) {}
PLIMSOLL_DEVICE_API char __cudaInitModule(void**) { return 1; }
PLIMSOLL_DEVICE_API void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*, Dim3*, Dim3*, int*) {
  register_kernel(host, name);
}
PLIMSOLL_DEVICE_API unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, std::size_t shared, Handle stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}
PLIMSOLL_DEVICE_API int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, std::size_t* shared, Handle* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *stream = configuration.stream;
  return 0;
}
PLIMSOLL_DEVICE_API int __cudaGetKernel(const void** kernel, const void* function) {
  *kernel = function;
  return 0;
}
PLIMSOLL_DEVICE_API int cudaGetKernel(const void** kernel, const void* function) { return __cudaGetKernel(kernel, function); }
PLIMSOLL_DEVICE_API int cudaGetFuncBySymbol(const void** function, const void* symbol) { return __cudaGetKernel(function, symbol); }

PLIMSOLL_DEVICE_API int cudaLaunchKernel(const void* function, Dim3 blocks, Dim3 threads, void**, std::size_t shared, Handle stream) {
  return launch_on({function, grid(blocks), grid(threads), shared}, stream);
}
PLIMSOLL_DEVICE_API int __cudaLaunchKernel(const void* function, Dim3 blocks, Dim3 threads, void**, std::size_t shared, Handle stream) {
  return launch_on({function, grid(blocks), grid(threads), shared}, stream);
}
PLIMSOLL_DEVICE_API int cudaLaunchCooperativeKernel(const void* function, Dim3 blocks, Dim3 threads, void**, std::size_t shared,
                                                    Handle stream) {
  return launch_on({function, grid(blocks), grid(threads), shared, 1, true}, stream);
}
PLIMSOLL_DEVICE_API int cudaLaunchKernelExC(const LaunchConfiguration* c, const void* function, void**) {
  return launch_on(launch_of(*c, function), c->stream);
}

PLIMSOLL_DEVICE_API int cudaFuncGetAttributes(FunctionAttributes* a, const void*) {
  *a = {};
  a->most_threads = 1024;
  a->registers = 64;
  a->ptx_version = a->binary_version = settings().major * 10 + settings().minor;
  a->most_dynamic_shared = static_cast<int>(limits_of_accelerator().shared_per_block_optin);
  return 0;
}
PLIMSOLL_DEVICE_API int cudaFuncSetAttribute(const void*, int attribute, int value) {
  constexpr int kMostDynamicShared = 8;
  const bool too_much = attribute == kMostDynamicShared && value > static_cast<int>(limits_of_accelerator().shared_per_block_optin);
  return give(too_much ? Status::invalid_value : Status::ok);
}
PLIMSOLL_DEVICE_API int cudaKernelSetAttributeForDevice(const void* kernel, int attribute, int value, int) {
  return cudaFuncSetAttribute(kernel, attribute, value);
}
PLIMSOLL_DEVICE_API int cudaFuncSetCacheConfig(const void*, int) { return 0; }
PLIMSOLL_DEVICE_API int cudaFuncGetName(const char** name, const void* function) {
  *name = kernel_name(function);
  return give(*name == nullptr ? Status::not_found : Status::ok);
}
PLIMSOLL_DEVICE_API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, std::size_t shared) {
  *blocks = occupancy(threads, shared);
  return 0;
}
PLIMSOLL_DEVICE_API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                               std::size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
PLIMSOLL_DEVICE_API int cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, const void*, int blocks, int) {
  const Limits& limits = limits_of_accelerator();
  const auto share = limits.shared_per_processor / static_cast<std::uint64_t>(blocks < 1 ? 1 : blocks);
  *bytes = share < 1024 ? 0 : share - 1024 < limits.shared_per_block_optin ? share - 1024 : limits.shared_per_block_optin;
  return 0;
}
PLIMSOLL_DEVICE_API int cudaOccupancyMaxActiveClusters(int* clusters, const void* function, const LaunchConfiguration* c) {
  const Launch it = launch_of(*c, function);
  const int blocks = occupancy(static_cast<int>(c->block.x * c->block.y * c->block.z), c->shared) * settings().processors;
  *clusters = blocks / static_cast<int>(it.cluster == 0 ? 1 : it.cluster);
  return 0;
}
PLIMSOLL_DEVICE_API int cudaOccupancyMaxPotentialClusterSize(int* size, const void*, const LaunchConfiguration*) {
  *size = 8;  // the largest portable one
  return 0;
}

PLIMSOLL_DEVICE_API int cudaLibraryLoadData(Handle* library, const void*, int*, void**, unsigned, int*, void**, unsigned) {
  *library = load_module();
  return 0;
}
PLIMSOLL_DEVICE_API int cudaLibraryLoadFromFile(Handle* library, const char*, int*, void**, unsigned, int*, void**, unsigned) {
  *library = load_module();
  return 0;
}
PLIMSOLL_DEVICE_API int cudaLibraryUnload(Handle) { return 0; }  // its kernels' names stay known
PLIMSOLL_DEVICE_API int cudaLibraryGetKernel(const void** kernel, Handle library, const char* name) {
  *kernel = kernel_of(static_cast<Module*>(library), name);
  return 0;
}

PLIMSOLL_DEVICE_API int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version, unsigned long long,
                                                         int* result) {
  return entry_point(name, function, version, result);
}
PLIMSOLL_DEVICE_API int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long, int* result) {
  return entry_point(name, function, PLIMSOLL_CUDA_MAJOR * 1000, result);
}
// Tables without documentation: only the vendor's own tools ask.
PLIMSOLL_DEVICE_API int cudaGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return give(Status::not_supported);
}

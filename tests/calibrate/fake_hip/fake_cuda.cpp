// The entry points of libcuda that a program with plain C types can call; README.md says what the environment changes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fake_device.hpp"

namespace fake = plimsoll::calibrate::fake;
using plimsoll::calibrate::Target;

namespace plimsoll::calibrate::fake {
const char* const prefix = "FAKE_CUDA";
const char* const default_architecture = "sm_90";
}  // namespace plimsoll::calibrate::fake

namespace {

// cuda.h
constexpr int kInvalidPtx = 218;
constexpr int kClockRate = 13, kMultiprocessors = 16, kMajor = 75, kMinor = 76;
constexpr int kMostSharedBytes = 8;  // an attribute of functions
using Pointer = unsigned long long;

constexpr fake::ErrorName error_names[] = {{0, "CUDA_SUCCESS"},
                                           {1, "CUDA_ERROR_INVALID_VALUE"},
                                           {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                           {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
                                           {100, "CUDA_ERROR_NO_DEVICE"},
                                           {101, "CUDA_ERROR_INVALID_DEVICE"},
                                           {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
                                           {218, "CUDA_ERROR_INVALID_PTX"},
                                           {500, "CUDA_ERROR_NOT_FOUND"},
                                           {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
                                           {719, "CUDA_ERROR_LAUNCH_FAILED"}};

// 90 of "sm_90".
int capability() { return std::atoi(fake::architecture().c_str() + 3); }

// Modules are their targets, by their place in this list; PTX runs on every later device, sm_90a's on 9.0 alone.
struct Module {
  Target target;
  int capability;
  bool exactly;
};
Module modules[] = {{Target::sm_80, 80, false}, {Target::sm_90, 90, false}, {Target::sm_90a, 90, true}};

void* pointer(Pointer address) { return reinterpret_cast<void*>(address); }

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API int cuInit(unsigned) {
  if (const int code = static_cast<int>(fake::setting("INIT_ERROR", 0)); code != 0) return code;
  return fake::device_count() == 0 ? fake::kNoDevice : 0;
}
API int cuDriverGetVersion(int* version) {
  *version = static_cast<int>(fake::setting("VERSION", 12080));
  return 0;
}
API int cuGetErrorName(int code, const char** name) {
  *name = fake::name_of_error(error_names, code);
  return *name ? 0 : fake::kInvalidValue;
}

API int cuDeviceGetCount(int* count) {
  *count = fake::device_count();
  return 0;
}
API int cuDeviceGet(int* id, int device) {
  *id = device;
  return fake::valid(device) ? 0 : fake::kInvalidDevice;
}
API int cuDeviceGetName(char* name, int size, int device) { return fake::device_name(name, size, device); }
API int cuDeviceGetPCIBusId(char* text, int size, int device) { return fake::pci_address(text, size, device); }
API int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (!fake::valid(device)) return fake::kInvalidDevice;
  switch (attribute) {
    case kClockRate:
      *value = 1980000;
      return 0;
    case kMultiprocessors:
      *value = static_cast<int>(fake::setting("COMPUTE_UNITS", 4));
      return 0;
    case kMajor:
      *value = capability() / 10;
      return 0;
    case kMinor:
      *value = capability() % 10;
      return 0;
    default:
      return fake::kInvalidValue;
  }
}
API int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (!fake::valid(device)) return fake::kInvalidDevice;
  *context = fake::devices()[static_cast<std::size_t>(device)].get();
  return static_cast<int>(fake::setting("DEVICE_ERROR", 0));
}
API int cuCtxSetCurrent(void* context) {
  for (std::size_t i = 0; i < fake::devices().size(); ++i) {
    if (fake::devices()[i].get() == context) fake::current_index() = static_cast<int>(i);
  }
  return 0;
}

API int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) { return fake::memory_info(free, total); }
API int cuMemAlloc_v2(Pointer* memory, std::size_t bytes) {
  void* given = nullptr;
  const bool fits = fake::current().allocate(&given, bytes);
  *memory = reinterpret_cast<Pointer>(given);
  return fits ? 0 : fake::kOutOfMemory;
}
API int cuMemFree_v2(Pointer memory) { return fake::release(pointer(memory)); }
API int cuMemAddressReserve(Pointer* range, std::size_t bytes, std::size_t, Pointer, unsigned long long) {
  void* given = nullptr;
  const int code = fake::reserve_addresses(&given, bytes);
  *range = reinterpret_cast<Pointer>(given);
  return code;
}
API int cuMemAddressFree(Pointer range, std::size_t bytes) { return fake::free_addresses(pointer(range), bytes); }
API int cuMemCreate(Pointer* handle, std::size_t bytes, const fake::MappedMemory* wanted, unsigned long long) {
  void* made = nullptr;
  const int code = fake::create_pages(&made, bytes, wanted);
  *handle = reinterpret_cast<Pointer>(made);
  return code;
}
API int cuMemRelease(Pointer handle) { return fake::release_pages(pointer(handle)); }
API int cuMemMap(Pointer at, std::size_t bytes, std::size_t, Pointer handle, unsigned long long) {
  return fake::map_pages(pointer(at), bytes, pointer(handle));
}
API int cuMemUnmap(Pointer at, std::size_t bytes) { return fake::unmap_pages(pointer(at), bytes); }
API int cuMemSetAccess(Pointer at, std::size_t bytes, const fake::MappedAccess* access, std::size_t count) {
  return count == 1 ? fake::set_access(pointer(at), bytes, access) : fake::kInvalidValue;
}
API int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) { return fake::allocate_host(memory, bytes); }
API int cuMemFreeHost(void* memory) { return fake::release_host(memory); }
API int cuMemcpyAsync(Pointer to, Pointer from, std::size_t bytes, void*) {
  fake::copy(pointer(to), pointer(from), bytes);
  return 0;
}
API int cuMemsetD8Async(Pointer to, unsigned char byte, std::size_t bytes, void*) {
  fake::fill(pointer(to), byte, bytes);
  return 0;
}

API int cuModuleLoadData(void** module, const void* image) {
  const char* target = std::strstr(static_cast<const char*>(image), "\n.target ");
  if (!target) return kInvalidPtx;
  const char* name = target + std::strlen("\n.target ");
  for (Module& candidate : modules) {
    const auto text = plimsoll::calibrate::name_of(candidate.target);
    if (std::strncmp(name, text.data(), text.size()) != 0 || name[text.size()] != '\n') continue;
    if (candidate.exactly ? candidate.capability != capability() : candidate.capability > capability()) return kInvalidPtx;
    *module = &candidate;
    return 0;
  }
  return kInvalidPtx;
}
API int cuModuleGetFunction(void** function, void* module, const char* name) {
  return fake::find_function(function, static_cast<Module*>(module)->target, name);
}
API int cuFuncSetAttribute(void* function, int attribute, int value) {
  return attribute == kMostSharedBytes ? fake::allow_shared(function, value) : fake::kInvalidValue;
}
API int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y, unsigned threads_z,
                       unsigned shared_bytes, void*, void** arguments, void**) {
  return fake::launch(function, {x, y, z}, {threads_x, threads_y, threads_z}, shared_bytes, arguments);
}

API int cuStreamCreate(void** stream, unsigned) { return fake::create_stream(stream); }
API int cuStreamDestroy_v2(void*) { return 0; }
API int cuStreamWaitEvent(void*, void* event, unsigned) { return fake::wait_event(event); }
API int cuEventCreate(void** event, unsigned) { return fake::create_event(event); }
API int cuEventDestroy_v2(void* event) { return fake::destroy_event(event); }
API int cuEventRecord(void* event, void*) { return fake::record_event(event); }
API int cuEventSynchronize(void* event) { return fake::synchronize_event(event); }
API int cuEventElapsedTime(float* milliseconds, void* from, void* to) { return fake::elapsed(milliseconds, from, to); }
API int cuCtxSynchronize() { return fake::synchronize(); }

API int cuDeviceCanAccessPeer(int* can, int device, int peer) { return fake::can_access_peer(can, device, peer); }
API int cuCtxEnablePeerAccess(void* context, unsigned) {
  for (std::size_t i = 0; i < fake::devices().size(); ++i)
    if (fake::devices()[i].get() == context) return fake::enable_peer(static_cast<int>(i));
  return fake::kInvalidValue;
}

// ---- NVML, for PLIMSOLL_NVML_LIBRARY -----------------------------------------------------------------------------------------

API int nvmlInit_v2() { return 0; }
API int nvmlShutdown() { return 0; }
API int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  constexpr int kNotFoundByNvml = 6;
  for (int i = 0; i < fake::device_count(); ++i) {
    char own[32] = "";
    cuDeviceGetPCIBusId(own, sizeof own, i);
    if (std::strcmp(own, address) != 0) continue;
    *device = fake::devices()[static_cast<std::size_t>(i)].get();
    return 0;
  }
  return kNotFoundByNvml;
}
API int nvmlDeviceGetClockInfo(void*, int clock, unsigned* megahertz) {
  *megahertz = clock == 1 ? 1755 : 2619;  // multiprocessors; memory
  return 0;
}
API int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 431000;
  return 0;
}
API int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) {
  *milliwatts = 700000;
  return 0;
}
API int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  auto* owner = static_cast<fake::Device*>(device);
  memory[0] = owner->total(), memory[2] = owner->used(), memory[1] = memory[0] - memory[2];
  return 0;
}
API int nvmlDeviceGetUtilizationRates(void*, unsigned* rates) {
  rates[0] = static_cast<unsigned>(fake::setting("BUSY", 0)), rates[1] = 0;
  return 0;
}

// The entry points of libamdhip64 that a program with plain C types can call; README.md says what the environment changes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fake_device.hpp"

namespace fake = plimsoll::calibrate::fake;
using plimsoll::calibrate::Target;

namespace plimsoll::calibrate::fake {
const char* const prefix = "FAKE_HIP";
const char* const default_architecture = "gfx942:sramecc+:xnack-";
}  // namespace plimsoll::calibrate::fake

namespace {

// hip_runtime_api.h
constexpr int kNoBinaryForGpu = 209;
constexpr int kClockRate = 5, kMultiprocessors = 63, kWarpSize = 87;

constexpr fake::ErrorName error_names[] = {{0, "hipSuccess"},
                                           {1, "hipErrorInvalidValue"},
                                           {2, "hipErrorOutOfMemory"},
                                           {3, "hipErrorNotInitialized"},
                                           {35, "hipErrorInsufficientDriver"},
                                           {46, "hipErrorDeviceUnavailable"},
                                           {100, "hipErrorNoDevice"},
                                           {101, "hipErrorInvalidDevice"},
                                           {209, "hipErrorNoBinaryForGpu"},
                                           {214, "hipErrorECCNotCorrectable"},
                                           {304, "hipErrorOperatingSystem"},
                                           {500, "hipErrorNotFound"},
                                           {600, "hipErrorNotReady"},
                                           {704, "hipErrorPeerAccessAlreadyEnabled"},
                                           {719, "hipErrorLaunchFailure"}};

// EF_AMDGPU_MACH of the LLVM AMDGPU guide, for the processors that are emulated.
int machine_of(Target target) { return target == Target::gfx90a ? 0x3F : target == Target::gfx942 ? 0x4C : 0x4F; }

// The header of an AMD code object: ELF64 for machine 224, whose flags (at byte 48) name the processor.
bool loads_here(const void* image) {
  Target target;
  if (!fake::emulated_target(target)) return false;
  const auto* bytes = static_cast<const unsigned char*>(image);
  return std::memcmp(bytes, "\177ELF\2", 5) == 0 && bytes[18] == 224 && bytes[48] == machine_of(target);
}

int properties_at(void* properties, int device, std::size_t size, std::size_t offset) {
  if (!fake::valid(device)) return fake::kInvalidDevice;
  std::memset(properties, 0, size);
  std::snprintf(static_cast<char*>(properties) + offset, 256, "%s", fake::architecture().c_str());
  return 0;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API int hipInit(unsigned) { return static_cast<int>(fake::setting("INIT_ERROR", 0)); }
API int hipRuntimeGetVersion(int* version) {
#if defined(FAKE_HIP_5)
  *version = static_cast<int>(fake::setting("VERSION", 50221153));
#else
  *version = static_cast<int>(fake::setting("VERSION", 60342134));
#endif
  return 0;
}
API int hipDriverGetVersion(int* version) { return hipRuntimeGetVersion(version); }
API const char* hipGetErrorName(int code) {
  const char* name = fake::name_of_error(error_names, code);
  return name ? name : "hipErrorUnknown";
}
API const char* hipGetErrorString(int code) { return hipGetErrorName(code); }

API int hipGetDeviceCount(int* count) {
  *count = fake::device_count();
  return *count == 0 ? fake::kNoDevice : 0;
}
API int hipSetDevice(int device) {
  if (!fake::valid(device)) return fake::kInvalidDevice;
  fake::current_index() = device;
  return static_cast<int>(fake::setting("DEVICE_ERROR", 0));
}
API int hipGetDevice(int* device) {
  *device = fake::current_index();
  return 0;
}
API int hipDeviceGetName(char* name, int size, int device) { return fake::device_name(name, size, device); }
API int hipDeviceGetAttribute(int* value, int attribute, int device) {
  if (!fake::valid(device)) return fake::kInvalidDevice;
  switch (attribute) {
    case kClockRate:
      *value = 2100000;
      return 0;
    case kMultiprocessors:
      *value = static_cast<int>(fake::setting("COMPUTE_UNITS", 4));
      return 0;
    case kWarpSize:
      *value = 64;
      return 0;
    default:
      return fake::kInvalidValue;
  }
}
API int hipDeviceGetPCIBusId(char* text, int size, int device) { return fake::pci_address(text, size, device); }
#if defined(FAKE_HIP_5)
API int hipGetDeviceProperties(void* properties, int device) { return properties_at(properties, device, 792, 396); }
#else
API int hipGetDevicePropertiesR0600(void* properties, int device) { return properties_at(properties, device, 1472, 1160); }
API int hipGetDevicePropertiesR0000(void* properties, int device) { return properties_at(properties, device, 792, 396); }
#endif

API int hipMemGetInfo(std::size_t* free, std::size_t* total) { return fake::memory_info(free, total); }
API int hipDeviceTotalMem(std::size_t* total, int device) {
  if (!fake::valid(device)) return fake::kInvalidDevice;
  *total = fake::devices()[static_cast<std::size_t>(device)]->total();
  return 0;
}
API int hipMalloc(void** memory, std::size_t bytes) { return fake::current().allocate(memory, bytes) ? 0 : fake::kOutOfMemory; }
API int hipExtMallocWithFlags(void** memory, std::size_t bytes, unsigned) { return hipMalloc(memory, bytes); }
API int hipFree(void* memory) { return fake::release(memory); }
API int hipMemAddressReserve(void** range, std::size_t bytes, std::size_t, void*, unsigned long long) {
  return fake::reserve_addresses(range, bytes);
}
API int hipMemAddressFree(void* range, std::size_t bytes) { return fake::free_addresses(range, bytes); }
API int hipMemCreate(void** handle, std::size_t bytes, const fake::MappedMemory* wanted, unsigned long long) {
  return fake::create_pages(handle, bytes, wanted);
}
API int hipMemRelease(void* handle) { return fake::release_pages(handle); }
API int hipMemMap(void* at, std::size_t bytes, std::size_t, void* handle, unsigned long long) { return fake::map_pages(at, bytes, handle); }
API int hipMemUnmap(void* at, std::size_t bytes) { return fake::unmap_pages(at, bytes); }
API int hipMemSetAccess(void* at, std::size_t bytes, const fake::MappedAccess* access, std::size_t count) {
  return count == 1 ? fake::set_access(at, bytes, access) : fake::kInvalidValue;
}
API int hipHostMalloc(void** memory, std::size_t bytes, unsigned) { return fake::allocate_host(memory, bytes); }
API int hipHostFree(void* memory) { return fake::release_host(memory); }
API int hipMemcpyAsync(void* to, const void* from, std::size_t bytes, int, void*) {
  fake::copy(to, from, bytes);
  return 0;
}
API int hipMemcpy(void* to, const void* from, std::size_t bytes, int) {
  fake::copy(to, from, bytes);
  return fake::synchronize();
}
API int hipMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, void*) {
  fake::copy(to, from, bytes);
  return 0;
}
API int hipMemsetAsync(void* to, int byte, std::size_t bytes, void*) {
  fake::fill(to, byte, bytes);
  return 0;
}
API int hipMemset(void* to, int byte, std::size_t bytes) {
  fake::fill(to, byte, bytes);
  return fake::synchronize();
}

API int hipModuleLoadData(void** module, const void* image) {
  if (!loads_here(image)) return kNoBinaryForGpu;
  *module = const_cast<void*>(image);
  return 0;
}
API int hipModuleUnload(void*) { return 0; }
API int hipModuleGetFunction(void** function, void*, const char* name) {
  Target target;
  return fake::emulated_target(target) ? fake::find_function(function, target, name) : fake::kNotFound;
}
API int hipModuleLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                              unsigned threads_z, unsigned shared_bytes, void*, void** arguments, void**) {
  return fake::launch(function, {x, y, z}, {threads_x, threads_y, threads_z}, shared_bytes, arguments);
}

API int hipStreamCreateWithFlags(void** stream, unsigned) { return fake::create_stream(stream); }
API int hipStreamCreate(void** stream) { return hipStreamCreateWithFlags(stream, 0); }
API int hipStreamDestroy(void*) { return 0; }
API int hipStreamSynchronize(void*) { return fake::synchronize(); }
API int hipDeviceSynchronize() { return fake::synchronize(); }
API int hipStreamWaitEvent(void*, void* event, unsigned) { return fake::wait_event(event); }

API int hipEventCreate(void** event) { return fake::create_event(event); }
API int hipEventCreateWithFlags(void** event, unsigned) { return hipEventCreate(event); }
API int hipEventDestroy(void* event) { return fake::destroy_event(event); }
API int hipEventRecord(void* event, void*) { return fake::record_event(event); }
API int hipEventSynchronize(void* event) { return fake::synchronize_event(event); }
API int hipEventQuery(void* event) {
  auto* at = static_cast<fake::Event*>(event);
  const std::lock_guard lock(at->mutex);
  return at->pending ? fake::kNotReady : 0;
}
API int hipEventElapsedTime(float* milliseconds, void* from, void* to) { return fake::elapsed(milliseconds, from, to); }

API int hipDeviceCanAccessPeer(int* can, int device, int peer) { return fake::can_access_peer(can, device, peer); }
API int hipDeviceEnablePeerAccess(int peer, unsigned) { return fake::enable_peer(peer); }

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
constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNoDevice = 100, kInvalidDevice = 101, kNoBinaryForGpu = 209, kNotFound = 500,
              kNotReady = 600, kPeerAccessAlreadyEnabled = 704;
constexpr int kClockRate = 5, kMultiprocessors = 63, kWarpSize = 87;

struct ErrorName {
  int code;
  const char* name;
};
constexpr ErrorName error_names[] = {{0, "hipSuccess"},
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

bool valid(int device) { return device >= 0 && device < fake::device_count(); }

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
  if (!valid(device)) return kInvalidDevice;
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
  const auto* found = std::find_if(std::begin(error_names), std::end(error_names), [&](const ErrorName& row) { return row.code == code; });
  return found == std::end(error_names) ? "hipErrorUnknown" : found->name;
}
API const char* hipGetErrorString(int code) { return hipGetErrorName(code); }

API int hipGetDeviceCount(int* count) {
  *count = fake::device_count();
  return *count == 0 ? kNoDevice : 0;
}
API int hipSetDevice(int device) {
  if (!valid(device)) return kInvalidDevice;
  fake::current_index() = device;
  return static_cast<int>(fake::setting("DEVICE_ERROR", 0));
}
API int hipGetDevice(int* device) {
  *device = fake::current_index();
  return 0;
}
API int hipDeviceGetName(char* name, int size, int device) {
  if (!valid(device)) return kInvalidDevice;
  std::snprintf(name, static_cast<std::size_t>(size), "%s", fake::setting("NAME", std::string("Emulated device")).c_str());
  return 0;
}
API int hipDeviceGetAttribute(int* value, int attribute, int device) {
  if (!valid(device)) return kInvalidDevice;
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
      return kInvalidValue;
  }
}
API int hipDeviceGetPCIBusId(char* text, int size, int device) {
  if (!valid(device)) return kInvalidDevice;
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 5);
  return 0;
}
#if defined(FAKE_HIP_5)
API int hipGetDeviceProperties(void* properties, int device) { return properties_at(properties, device, 792, 396); }
#else
API int hipGetDevicePropertiesR0600(void* properties, int device) { return properties_at(properties, device, 1472, 1160); }
API int hipGetDevicePropertiesR0000(void* properties, int device) { return properties_at(properties, device, 792, 396); }
#endif

API int hipMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = fake::current().total();
  *free = *total - fake::current().used();
  return 0;
}
API int hipDeviceTotalMem(std::size_t* total, int device) {
  if (!valid(device)) return kInvalidDevice;
  *total = fake::devices()[static_cast<std::size_t>(device)]->total();
  return 0;
}
API int hipMalloc(void** memory, std::size_t bytes) { return fake::current().allocate(memory, bytes) ? 0 : kOutOfMemory; }
API int hipExtMallocWithFlags(void** memory, std::size_t bytes, unsigned) { return hipMalloc(memory, bytes); }
API int hipFree(void* memory) {
  if (!memory) return 0;
  fake::Device* owner = fake::owner_of(memory);
  return owner && owner->release(memory) ? 0 : kInvalidValue;
}
API int hipHostMalloc(void** memory, std::size_t bytes, unsigned) {
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!*memory) return kOutOfMemory;
  fake::note_host_memory(*memory, true);
  return 0;
}
API int hipHostFree(void* memory) {
  fake::note_host_memory(memory, false);
  std::free(memory);
  return 0;
}
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
  if (!fake::emulated_target(target)) return kNotFound;
  const fake::Function* found = fake::find_function(target, name);
  *function = const_cast<fake::Function*>(found);
  return found ? 0 : kNotFound;
}
API int hipModuleLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                              unsigned threads_z, unsigned, void*, void** arguments, void**) {
  if (y != 1 || z != 1 || threads_x != 256 || threads_y != 1 || threads_z != 1 || x == 0) return kInvalidValue;
  return fake::launch(*static_cast<const fake::Function*>(function), x, arguments);
}

// All streams of a device run in one order; a stream is only a name.
API int hipStreamCreateWithFlags(void** stream, unsigned) {
  static char name;
  *stream = &name;
  return 0;
}
API int hipStreamCreate(void** stream) { return hipStreamCreateWithFlags(stream, 0); }
API int hipStreamDestroy(void*) { return 0; }
API int hipStreamSynchronize(void*) { return fake::synchronize(); }
API int hipDeviceSynchronize() { return fake::synchronize(); }
API int hipStreamWaitEvent(void*, void* event, unsigned) {
  fake::current().wait(static_cast<fake::Event*>(event));
  return 0;
}

API int hipEventCreate(void** event) {
  *event = new fake::Event;
  return 0;
}
API int hipEventCreateWithFlags(void** event, unsigned) { return hipEventCreate(event); }
API int hipEventDestroy(void* event) {
  fake::current().synchronize();
  delete static_cast<fake::Event*>(event);
  return 0;
}
API int hipEventRecord(void* event, void*) {
  fake::current().record(static_cast<fake::Event*>(event));
  return 0;
}
API int hipEventSynchronize(void* event) {
  static_cast<fake::Event*>(event)->wait_until_reached();
  return static_cast<int>(fake::setting("SYNCHRONIZE_ERROR", 0));
}
API int hipEventQuery(void* event) {
  auto* at = static_cast<fake::Event*>(event);
  const std::lock_guard lock(at->mutex);
  return at->pending ? kNotReady : 0;
}
API int hipEventElapsedTime(float* milliseconds, void* from, void* to) {
  *milliseconds = static_cast<float>((static_cast<fake::Event*>(to)->seconds - static_cast<fake::Event*>(from)->seconds) * 1e3);
  return 0;
}

API int hipDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!valid(device) || !valid(peer)) return kInvalidDevice;
  *can = device != peer && fake::setting("NO_PEER", 0) == 0;
  return 0;
}
API int hipDeviceEnablePeerAccess(int peer, unsigned) {
  static thread_local std::vector<std::pair<int, int>> enabled;
  if (!valid(peer)) return kInvalidDevice;
  const std::pair<int, int> pair{fake::current_index(), peer};
  if (std::find(enabled.begin(), enabled.end(), pair) != enabled.end()) return kPeerAccessAlreadyEnabled;
  enabled.push_back(pair);
  return 0;
}

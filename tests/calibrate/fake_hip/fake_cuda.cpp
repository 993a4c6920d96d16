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
constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNoDevice = 100, kInvalidDevice = 101, kInvalidPtx = 218, kNotFound = 500,
              kPeerAccessAlreadyEnabled = 704;
constexpr int kClockRate = 13, kMultiprocessors = 16, kMajor = 75, kMinor = 76;
using Pointer = unsigned long long;

struct ErrorName {
  int code;
  const char* name;
};
constexpr ErrorName error_names[] = {{0, "CUDA_SUCCESS"},
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

bool valid(int device) { return device >= 0 && device < fake::device_count(); }

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
  return fake::device_count() == 0 ? kNoDevice : 0;
}
API int cuDriverGetVersion(int* version) {
  *version = static_cast<int>(fake::setting("VERSION", 12080));
  return 0;
}
API int cuGetErrorName(int code, const char** name) {
  const auto* found = std::find_if(std::begin(error_names), std::end(error_names), [&](const ErrorName& row) { return row.code == code; });
  *name = found == std::end(error_names) ? nullptr : found->name;
  return *name ? 0 : kInvalidValue;
}

API int cuDeviceGetCount(int* count) {
  *count = fake::device_count();
  return 0;
}
API int cuDeviceGet(int* id, int device) {
  *id = device;
  return valid(device) ? 0 : kInvalidDevice;
}
API int cuDeviceGetName(char* name, int size, int device) {
  if (!valid(device)) return kInvalidDevice;
  std::snprintf(name, static_cast<std::size_t>(size), "%s", fake::setting("NAME", std::string("Emulated device")).c_str());
  return 0;
}
API int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (!valid(device)) return kInvalidDevice;
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
      return kInvalidValue;
  }
}
API int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (!valid(device)) return kInvalidDevice;
  *context = fake::devices()[static_cast<std::size_t>(device)].get();
  return static_cast<int>(fake::setting("DEVICE_ERROR", 0));
}
API int cuCtxSetCurrent(void* context) {
  for (std::size_t i = 0; i < fake::devices().size(); ++i) {
    if (fake::devices()[i].get() == context) fake::current_index() = static_cast<int>(i);
  }
  return 0;
}

API int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *total = fake::current().total();
  *free = *total - fake::current().used();
  return 0;
}
API int cuMemAlloc_v2(Pointer* memory, std::size_t bytes) {
  void* given = nullptr;
  const bool fits = fake::current().allocate(&given, bytes);
  *memory = reinterpret_cast<Pointer>(given);
  return fits ? 0 : kOutOfMemory;
}
API int cuMemFree_v2(Pointer memory) {
  fake::Device* owner = fake::owner_of(pointer(memory));
  return owner && owner->release(pointer(memory)) ? 0 : kInvalidValue;
}
API int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!*memory) return kOutOfMemory;
  fake::note_host_memory(*memory, true);
  return 0;
}
API int cuMemFreeHost(void* memory) {
  fake::note_host_memory(memory, false);
  std::free(memory);
  return 0;
}
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
  const fake::Function* found = fake::find_function(static_cast<Module*>(module)->target, name);
  *function = const_cast<fake::Function*>(found);
  return found ? 0 : kNotFound;
}
API int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y, unsigned threads_z,
                       unsigned, void*, void** arguments, void**) {
  if (y != 1 || z != 1 || threads_x != 256 || threads_y != 1 || threads_z != 1 || x == 0) return kInvalidValue;
  return fake::launch(*static_cast<const fake::Function*>(function), x, arguments);
}

// All streams of a device run in one order; a stream is only a name.
API int cuStreamCreate(void** stream, unsigned) {
  static char name;
  *stream = &name;
  return 0;
}
API int cuStreamDestroy_v2(void*) { return 0; }
API int cuStreamWaitEvent(void*, void* event, unsigned) {
  fake::current().wait(static_cast<fake::Event*>(event));
  return 0;
}
API int cuEventCreate(void** event, unsigned) {
  *event = new fake::Event;
  return 0;
}
API int cuEventDestroy_v2(void* event) {
  fake::current().synchronize();
  delete static_cast<fake::Event*>(event);
  return 0;
}
API int cuEventRecord(void* event, void*) {
  fake::current().record(static_cast<fake::Event*>(event));
  return 0;
}
API int cuEventSynchronize(void* event) {
  static_cast<fake::Event*>(event)->wait_until_reached();
  return static_cast<int>(fake::setting("SYNCHRONIZE_ERROR", 0));
}
API int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  *milliseconds = static_cast<float>((static_cast<fake::Event*>(to)->seconds - static_cast<fake::Event*>(from)->seconds) * 1e3);
  return 0;
}
API int cuCtxSynchronize() { return fake::synchronize(); }

API int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!valid(device) || !valid(peer)) return kInvalidDevice;
  *can = device != peer && fake::setting("NO_PEER", 0) == 0;
  return 0;
}
API int cuCtxEnablePeerAccess(void* context, unsigned) {
  static thread_local std::vector<std::pair<int, void*>> enabled;
  const std::pair<int, void*> pair{fake::current_index(), context};
  if (std::find(enabled.begin(), enabled.end(), pair) != enabled.end()) return kPeerAccessAlreadyEnabled;
  enabled.push_back(pair);
  return 0;
}

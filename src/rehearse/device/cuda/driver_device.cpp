// The CUDA driver's devices, contexts, errors, and its functions by name.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "rehearse/device/core/interface.hpp"
#include "rehearse/device/core/properties.hpp"
#include "rehearse/device/core/settings.hpp"

using namespace plimsoll::device;

namespace {

constexpr int kVersion = 13020;

bool is_device(int device) { return device >= 0 && device < settings().devices; }

// Each device has one context, its primary one; a handle is the address of its number.
struct Context {
  int device;
};
Context* context_of(int device) {
  static auto* const all = [] {
    auto* contexts = new std::vector<Context>;
    for (int i = 0; i < static_cast<int>(machine().devices.size()); ++i) contexts->push_back({i});
    return contexts;
  }();
  return &(*all)[static_cast<std::size_t>(device)];
}

thread_local std::vector<int> pushed;  // devices whose contexts were current

int on_device_number(int device, Status status) { return static_cast<int>(is_device(device) ? status : Status::invalid_device); }

/// The newest form of a function that the caller's version of the interface knows.
void* find(void* library, const std::string& name, int version) {
  struct Row {
    const char* name;
    int since;
    const char* suffix;
  };
  // Functions whose later forms take other arguments.
  constexpr Row kForms[] = {{"cuStreamGetCaptureInfo", 13000, "_v3"},
                            {"cuStreamGetCaptureInfo", 12030, "_v3"},
                            {"cuStreamGetCaptureInfo", 11030, "_v2"},
                            {"cuCtxCreate", 12050, "_v4"},
                            {"cuCtxCreate", 11040, "_v3"},
                            {"cuCtxCreate", 3020, "_v2"}};
  for (const Row& row : kForms)
    if (name == row.name && version >= row.since) return dlsym(library, (name + row.suffix).c_str());
  for (const char* suffix : {"_v3", "_v2", ""})
    if (void* found = dlsym(library, (name + suffix).c_str()); found != nullptr) return found;
  return nullptr;
}

}  // namespace

PLIMSOLL_DEVICE_API int cuInit(unsigned) { return settings().devices > 0 ? 0 : static_cast<int>(Status::no_device); }
PLIMSOLL_DEVICE_API int cuDriverGetVersion(int* version) {
  *version = kVersion;
  return 0;
}
PLIMSOLL_DEVICE_API int cuGetErrorString(int error, const char** text) {
  *text = text_of(static_cast<Status>(error));
  return *text == nullptr ? static_cast<int>(Status::invalid_value) : 0;
}
PLIMSOLL_DEVICE_API int cuGetErrorName(int error, const char** text) {
  switch (error) {
    case 0:
      *text = "CUDA_SUCCESS";
      break;
    case 1:
      *text = "CUDA_ERROR_INVALID_VALUE";
      break;
    case 2:
      *text = "CUDA_ERROR_OUT_OF_MEMORY";
      break;
    case 100:
      *text = "CUDA_ERROR_NO_DEVICE";
      break;
    case 101:
      *text = "CUDA_ERROR_INVALID_DEVICE";
      break;
    case 201:
      *text = "CUDA_ERROR_INVALID_CONTEXT";
      break;
    case 400:
      *text = "CUDA_ERROR_INVALID_HANDLE";
      break;
    case 500:
      *text = "CUDA_ERROR_NOT_FOUND";
      break;
    case 600:
      *text = "CUDA_ERROR_NOT_READY";
      break;
    case 801:
      *text = "CUDA_ERROR_NOT_SUPPORTED";
      break;
    default:
      *text = text_of(static_cast<Status>(error));
      break;
  }
  return *text == nullptr ? static_cast<int>(Status::invalid_value) : 0;
}

PLIMSOLL_DEVICE_API int cuDeviceGetCount(int* count) {
  *count = settings().devices;
  return 0;
}
PLIMSOLL_DEVICE_API int cuDeviceGet(int* device, int number) {
  *device = number;
  return on_device_number(number, Status::ok);
}
PLIMSOLL_DEVICE_API int cuDeviceGetName(char* text, int length, int device) {
  if (length > 0) std::snprintf(text, static_cast<std::size_t>(length), "%s", settings().name.c_str());
  return on_device_number(device, Status::ok);
}
PLIMSOLL_DEVICE_API int cuDeviceGetUuid(Uuid* uuid, int device) {
  *uuid = uuid_of(device);
  return on_device_number(device, Status::ok);
}
PLIMSOLL_DEVICE_API int cuDeviceGetUuid_v2(Uuid* uuid, int device) { return cuDeviceGetUuid(uuid, device); }
PLIMSOLL_DEVICE_API int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  const auto held = lock();
  *bytes = machine().memory_bytes;
  return on_device_number(device, Status::ok);
}
PLIMSOLL_DEVICE_API int cuDeviceGetAttribute(int* value, int number, int device) {
  *value = number == 33 ? device + 1 : attribute(number);  // 33: the PCI bus
  return on_device_number(device, Status::ok);
}
PLIMSOLL_DEVICE_API int cuDeviceComputeCapability(int* major, int* minor, int device) {
  *major = settings().major;
  *minor = settings().minor;
  return on_device_number(device, Status::ok);
}
PLIMSOLL_DEVICE_API int cuDeviceGetPCIBusId(char* text, int length, int device) {
  if (length > 0) std::snprintf(text, static_cast<std::size_t>(length), "%s", pci_address(device).c_str());
  return on_device_number(device, Status::ok);
}
PLIMSOLL_DEVICE_API int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return on_device_number(peer, Status::ok);
}
PLIMSOLL_DEVICE_API int cuDeviceGetP2PAttribute(int* value, int attribute, int, int to) {
  *value = attribute == 1 ? 0 : 1;  // rank 0; access, atomics and arrays supported
  return on_device_number(to, Status::ok);
}

PLIMSOLL_DEVICE_API int cuDevicePrimaryCtxRetain(Handle* context, int device) {
  if (!is_device(device)) return static_cast<int>(Status::invalid_device);
  *context = context_of(device);
  return 0;
}
PLIMSOLL_DEVICE_API int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
PLIMSOLL_DEVICE_API int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return 0; }
PLIMSOLL_DEVICE_API int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return on_device_number(device, Status::ok);
}
PLIMSOLL_DEVICE_API int cuCtxCreate_v2(Handle* context, unsigned, int device) {
  if (!is_device(device)) return static_cast<int>(Status::invalid_device);
  *context = context_of(device);
  pushed.push_back(thread_state().device);
  thread_state().device = device;
  return 0;
}
PLIMSOLL_DEVICE_API int cuCtxCreate_v3(Handle* context, void*, int, unsigned flags, int device) {
  return cuCtxCreate_v2(context, flags, device);
}
PLIMSOLL_DEVICE_API int cuCtxCreate_v4(Handle* context, void*, unsigned flags, int device) {
  return cuCtxCreate_v2(context, flags, device);
}
PLIMSOLL_DEVICE_API int cuCtxDestroy_v2(Handle) { return 0; }
PLIMSOLL_DEVICE_API int cuCtxGetCurrent(Handle* context) {
  *context = context_of(thread_state().device);
  return 0;
}
PLIMSOLL_DEVICE_API int cuCtxSetCurrent(Handle context) {
  if (context != nullptr) thread_state().device = static_cast<Context*>(context)->device;
  return 0;
}
PLIMSOLL_DEVICE_API int cuCtxPushCurrent_v2(Handle context) {
  if (context == nullptr) return static_cast<int>(Status::invalid_context);
  pushed.push_back(thread_state().device);
  return cuCtxSetCurrent(context);
}
PLIMSOLL_DEVICE_API int cuCtxPopCurrent_v2(Handle* context) {
  if (context != nullptr) cuCtxGetCurrent(context);
  if (pushed.empty()) return 0;
  thread_state().device = pushed.back();
  pushed.pop_back();
  return 0;
}
PLIMSOLL_DEVICE_API int cuCtxGetDevice(int* device) {
  *device = thread_state().device;
  return 0;
}
PLIMSOLL_DEVICE_API int cuCtxGetApiVersion(Handle, unsigned* version) {
  *version = kVersion;
  return 0;
}
PLIMSOLL_DEVICE_API int cuCtxGetFlags(unsigned* flags) {
  *flags = 0;
  return 0;
}
PLIMSOLL_DEVICE_API int cuCtxGetId(Handle context, unsigned long long* id) {
  *id = static_cast<unsigned long long>(context == nullptr ? thread_state().device : static_cast<Context*>(context)->device) + 1;
  return 0;
}
PLIMSOLL_DEVICE_API int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return 0;
}
PLIMSOLL_DEVICE_API int cuCtxSynchronize() {
  const auto held = lock();
  machine().synchronize_device(thread_state().device);
  return 0;
}
PLIMSOLL_DEVICE_API int cuCtxEnablePeerAccess(Handle, unsigned) { return 0; }

PLIMSOLL_DEVICE_API int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t, int* result) {
  static void* const own = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  constexpr int kFound = 0, kNotFound = 1;
  *function = own == nullptr ? nullptr : find(own, name, version);
  if (result != nullptr) *result = *function != nullptr ? kFound : kNotFound;
  return *function != nullptr ? 0 : static_cast<int>(Status::not_found);
}
PLIMSOLL_DEVICE_API int cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
// Tables without documentation, which a statically linked runtime asks for: it cannot run on this driver.
PLIMSOLL_DEVICE_API int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return static_cast<int>(Status::not_found);
}
// The driver's own log, which stays empty.
PLIMSOLL_DEVICE_API int cuLogsRegisterCallback(void (*)(void*, int, char*, std::size_t), void*, Handle* handle) {
  if (handle != nullptr) *handle = nullptr;
  return 0;
}
PLIMSOLL_DEVICE_API int cuLogsUnregisterCallback(Handle) { return 0; }
// What a machine without the hardware for it answers: parts of a device as contexts, and multicast between devices.
PLIMSOLL_DEVICE_API int cuGreenCtxCreate(Handle*, Handle, int, unsigned) { return static_cast<int>(Status::not_supported); }
PLIMSOLL_DEVICE_API int cuMulticastCreate(std::uint64_t*, const void*) { return static_cast<int>(Status::not_supported); }

// NVML: the machine's devices and their memory. What is not here answers "not supported", as the library does for what a GPU lacks.
#include <cstdio>
#include <cstring>

#include "rehearse/device/core/interface.hpp"
#include "rehearse/device/core/memory.hpp"
#include "rehearse/device/core/properties.hpp"
#include "rehearse/device/core/settings.hpp"

using namespace plimsoll::device;

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotFound = 6, kTooSmall = 7;

/// Handles are 1 + the device's number.
int index_of(Handle device) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1; }
bool is_device(Handle device) { return index_of(device) >= 0 && index_of(device) < settings().devices; }

int give(int index, Handle* device) {
  if (index < 0 || index >= settings().devices) return kInvalidArgument;
  *device = reinterpret_cast<Handle>(static_cast<std::uintptr_t>(index) + 1);
  return kSuccess;
}

int put(char* text, unsigned length, const char* value) {
  if (std::strlen(value) >= length) return kTooSmall;
  std::strcpy(text, value);
  return kSuccess;
}

void uuid_text(int device, char text[48]) {
  const Uuid id = uuid_of(device);
  const auto* b = reinterpret_cast<const unsigned char*>(id.bytes);
  std::snprintf(text, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5],
                b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

struct Usage {
  unsigned long long total, free, used;
};

Usage usage_of(Handle device) {
  const auto held = lock();
  const std::uint64_t total = machine().memory_bytes, used = machine().devices[static_cast<std::size_t>(index_of(device))].used;
  return {total, used < total ? total - used : 0, used};
}

}  // namespace

PLIMSOLL_DEVICE_API int nvmlInit() { return kSuccess; }
PLIMSOLL_DEVICE_API int nvmlInit_v2() { return kSuccess; }
PLIMSOLL_DEVICE_API int nvmlInitWithFlags(unsigned) { return kSuccess; }
PLIMSOLL_DEVICE_API int nvmlShutdown() { return kSuccess; }
PLIMSOLL_DEVICE_API const char* nvmlErrorString(int status) { return status == kSuccess ? "Success" : "Not Supported"; }
PLIMSOLL_DEVICE_API int nvmlSystemGetCudaDriverVersion(int* version) {
  *version = 13020;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int nvmlSystemGetCudaDriverVersion_v2(int* version) { return nvmlSystemGetCudaDriverVersion(version); }
PLIMSOLL_DEVICE_API int nvmlSystemGetDriverVersion(char* text, unsigned length) { return put(text, length, "595.00"); }
PLIMSOLL_DEVICE_API int nvmlSystemGetNVMLVersion(char* text, unsigned length) { return put(text, length, "13.595.00"); }

PLIMSOLL_DEVICE_API int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(settings().devices);
  return kSuccess;
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }
PLIMSOLL_DEVICE_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* device) { return give(static_cast<int>(index), device); }
PLIMSOLL_DEVICE_API int nvmlDeviceGetHandleByIndex(unsigned index, Handle* device) { return give(static_cast<int>(index), device); }
PLIMSOLL_DEVICE_API int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Handle* device) {
  for (int i = 0; i < settings().devices; ++i) {  // with a domain of four or eight digits
    const std::string address = pci_address(i), given(bus);
    if (given == address || given == "0000" + address) return give(i, device);
  }
  return kNotFound;
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetHandleByPciBusId(const char* bus, Handle* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus, device);
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetHandleByUUID(const char* uuid, Handle* device) {
  char text[48];
  for (int i = 0; i < settings().devices; ++i) {
    uuid_text(i, text);
    if (std::strcmp(text, uuid) == 0) return give(i, device);
  }
  return kNotFound;
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetIndex(Handle device, unsigned* index) {
  if (!is_device(device)) return kInvalidArgument;
  *index = static_cast<unsigned>(index_of(device));
  return kSuccess;
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetMinorNumber(Handle device, unsigned* number) { return nvmlDeviceGetIndex(device, number); }
PLIMSOLL_DEVICE_API int nvmlDeviceGetName(Handle device, char* text, unsigned length) {
  return is_device(device) ? put(text, length, settings().name.c_str()) : kInvalidArgument;
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetUUID(Handle device, char* text, unsigned length) {
  if (!is_device(device)) return kInvalidArgument;
  char own[48];
  uuid_text(index_of(device), own);
  return put(text, length, own);
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetPciInfo_v3(Handle device, void* information) {
  struct PciInformation {
    char short_address[16];
    unsigned domain, bus, device, ids, subsystem_ids;
    char address[32];
  } own{};
  static_assert(sizeof own == 68);
  if (!is_device(device)) return kInvalidArgument;
  own.bus = static_cast<unsigned>(index_of(device)) + 1;
  std::snprintf(own.short_address, sizeof own.short_address, "%s", pci_address(index_of(device)).c_str());
  std::snprintf(own.address, sizeof own.address, "0000%s", pci_address(index_of(device)).c_str());
  std::memcpy(information, &own, sizeof own);
  return kSuccess;
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetCudaComputeCapability(Handle device, int* major, int* minor) {
  if (!is_device(device)) return kInvalidArgument;
  *major = settings().major;
  *minor = settings().minor;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetMemoryInfo(Handle device, Usage* usage) {
  if (!is_device(device)) return kInvalidArgument;
  *usage = usage_of(device);
  return kSuccess;
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetMemoryInfo_v2(Handle device, void* memory) {
  struct Versioned {
    unsigned version;
    unsigned long long total, reserved, free, used;
  };
  if (!is_device(device)) return kInvalidArgument;
  const Usage usage = usage_of(device);
  auto* to = static_cast<Versioned*>(memory);
  *to = {to->version, usage.total, 0, usage.free, usage.used};
  return kSuccess;
}
/// Devices of a node reach each other's memory, whatever is asked for (reads, writes, NVLink, atomics), as cudaDeviceCanAccessPeer says.
PLIMSOLL_DEVICE_API int nvmlDeviceGetP2PStatus(Handle device, Handle other, int, int* status) {
  if (!is_device(device) || !is_device(other)) return kInvalidArgument;
  *status = 0;  // NVML_P2P_STATUS_OK
  return kSuccess;
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetUtilizationRates(Handle device, unsigned rates[2]) {
  if (!is_device(device)) return kInvalidArgument;
  rates[0] = rates[1] = 0;  // GPU, memory
  return kSuccess;
}
/// Milliwatts: nothing is computed.
PLIMSOLL_DEVICE_API int nvmlDeviceGetPowerUsage(Handle device, unsigned* power) {
  if (!is_device(device)) return kInvalidArgument;
  *power = 0;
  return kSuccess;
}
/// Degrees Celsius, as the stand-in of nvidia-smi says.
PLIMSOLL_DEVICE_API int nvmlDeviceGetTemperature(Handle device, int, unsigned* degrees) {
  if (!is_device(device)) return kInvalidArgument;
  *degrees = 30;
  return kSuccess;
}
// Memory that other nodes may map: none is joined to another (NVML_GPU_FABRIC_STATE_NOT_SUPPORTED), as where no fabric manager gives out
// channels.
struct FabricInfo {
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
};
PLIMSOLL_DEVICE_API int nvmlDeviceGetGpuFabricInfo(Handle device, FabricInfo* info) {
  if (!is_device(device)) return kInvalidArgument;
  *info = {};
  return kSuccess;
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetGpuFabricInfoV(Handle device, void* versioned) {
  struct Versioned {
    unsigned version;
    FabricInfo info;
  };
  return nvmlDeviceGetGpuFabricInfo(device, &static_cast<Versioned*>(versioned)->info);
}
// The processes that use a device: none that this machine knows of.
PLIMSOLL_DEVICE_API int nvmlDeviceGetComputeRunningProcesses(Handle device, unsigned* count, void*) {
  if (!is_device(device)) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetComputeRunningProcesses_v2(Handle device, unsigned* count, void* all) {
  return nvmlDeviceGetComputeRunningProcesses(device, count, all);
}
PLIMSOLL_DEVICE_API int nvmlDeviceGetComputeRunningProcesses_v3(Handle device, unsigned* count, void* all) {
  return nvmlDeviceGetComputeRunningProcesses(device, count, all);
}

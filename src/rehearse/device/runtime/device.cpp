// The CUDA runtime's devices, their properties, and errors.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>

#include "device_properties.hpp"
#include "rehearse/device/core/properties.hpp"
#include "rehearse/device/core/settings.hpp"
#include "types.hpp"

using namespace plimsoll::device;
using namespace plimsoll::device::cuda;

namespace {

// What each generation of the runtime answers about itself: the newest toolkit of its major version whose names are known here.
constexpr int kVersion = PLIMSOLL_CUDA_MAJOR < 13 ? 12090 : 13020;
constexpr std::size_t kLimits = 8;
std::size_t limits[kLimits] = {1024, 1048576, 8388608, 0, 2048, 32, 0, 0};  // stack, printf, heap, depth, pending launches, L2 fetch, …

bool is_device(int device) { return device >= 0 && device < settings().devices; }

void fill(DeviceProperties* p, int device) {
  const Limits& own = limits_of_accelerator();
  std::memset(p, 0, sizeof *p);
  std::snprintf(p->name, sizeof p->name, "%s", settings().name.c_str());
  p->uuid = uuid_of(device);
  p->totalGlobalMem = machine().memory_bytes;
  p->sharedMemPerBlock = own.shared_per_block;
  p->sharedMemPerBlockOptin = own.shared_per_block_optin;
  p->sharedMemPerMultiprocessor = own.shared_per_processor;
  p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = own.warp;
  p->memPitch = 0x7fffffff;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = settings().major;
  p->minor = settings().minor;
  p->textureAlignment = p->surfaceAlignment = 512;
  p->texturePitchAlignment = 32;
  p->multiProcessorCount = settings().processors;
  p->maxThreadsPerMultiProcessor = own.threads_per_processor;
  p->maxBlocksPerMultiProcessor = own.blocks_per_processor;
  p->memoryBusWidth = own.memory_bus_bits;
  p->l2CacheSize = own.l2_bytes;
  p->pciBusID = device + 1;
  p->asyncEngineCount = 3;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported = 1;
  p->globalL1CacheSupported = p->localL1CacheSupported = p->managedMemory = p->computePreemptionSupported = 1;
  p->cooperativeLaunch = p->hostRegisterSupported = p->memoryPoolsSupported = 1;
  p->clusterLaunch = attribute(120);
#if PLIMSOLL_CUDA_MAJOR < 13
  p->clockRate = own.clock_khz;
  p->memoryClockRate = own.memory_clock_khz;
  p->deviceOverlap = 1;
#endif
}

std::set<std::pair<int, int>>& peers() {
  static auto* const once = new std::set<std::pair<int, int>>;
  return *once;
}

}  // namespace

PLIMSOLL_DEVICE_API int cudaGetDeviceCount(int* count) {
  *count = settings().devices;
  return give(*count > 0 ? Status::ok : Status::no_device);
}
PLIMSOLL_DEVICE_API int cudaGetDevice(int* device) {
  *device = thread_state().device;
  return 0;
}
PLIMSOLL_DEVICE_API int cudaSetDevice(int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  thread_state().device = device;
  return 0;
}
PLIMSOLL_DEVICE_API int cudaInitDevice(int device, unsigned, unsigned) {
  return give(is_device(device) ? Status::ok : Status::invalid_device);
}

#if PLIMSOLL_CUDA_MAJOR < 13
PLIMSOLL_DEVICE_API int cudaGetDeviceProperties_v2(DeviceProperties* properties, int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  fill(properties, device);
  return 0;
}
PLIMSOLL_DEVICE_API int cudaGetDeviceProperties(void* properties, int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  DeviceProperties all;
  fill(&all, device);
  std::memcpy(properties, &all, kOldBytes);
  return 0;
}
#else
PLIMSOLL_DEVICE_API int cudaGetDeviceProperties(DeviceProperties* properties, int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  fill(properties, device);
  return 0;
}
#endif

PLIMSOLL_DEVICE_API int cudaDeviceGetAttribute(int* value, int number, int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  *value = number == 33 ? device + 1 : attribute(number);  // 33: the PCI bus
  return 0;
}
PLIMSOLL_DEVICE_API int cudaDriverGetVersion(int* version) {
  *version = 13020;  // a driver runs the toolkits before it
  return 0;
}
PLIMSOLL_DEVICE_API int cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return 0;
}
PLIMSOLL_DEVICE_API int cudaDeviceSynchronize() {
  const auto held = lock();
  machine().synchronize_device(thread_state().device);
  return 0;
}
PLIMSOLL_DEVICE_API int cudaThreadSynchronize() { return cudaDeviceSynchronize(); }

PLIMSOLL_DEVICE_API int cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return give(Status::invalid_device);
  *can = device != peer ? 1 : 0;
  return 0;
}
PLIMSOLL_DEVICE_API int cudaDeviceEnablePeerAccess(int peer, unsigned) {
  const int own = thread_state().device;
  if (!is_device(peer) || peer == own) return give(Status::invalid_device);
  const auto held = lock();
  return give(peers().insert({own, peer}).second ? Status::ok : Status::peer_access_already_enabled);
}
PLIMSOLL_DEVICE_API int cudaDeviceDisablePeerAccess(int peer) {
  const auto held = lock();
  return give(peers().erase({thread_state().device, peer}) > 0 ? Status::ok : Status::peer_access_not_enabled);
}
PLIMSOLL_DEVICE_API int cudaDeviceGetP2PAttribute(int* value, int attribute, int from, int to) {
  if (!is_device(from) || !is_device(to) || from == to) return give(Status::invalid_device);
  *value = attribute == 1 ? 0 : 1;  // rank 0; access, atomics and arrays supported
  return 0;
}

PLIMSOLL_DEVICE_API int cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  if (length <= 0) return give(Status::invalid_value);
  std::snprintf(text, static_cast<std::size_t>(length), "%s", pci_address(device).c_str());
  return 0;
}
PLIMSOLL_DEVICE_API int cudaDeviceGetByPCIBusId(int* device, const char* text) {
  for (int i = 0; i < settings().devices; ++i) {
    if (pci_address(i) != text) continue;
    *device = i;
    return 0;
  }
  return give(Status::invalid_value);
}
PLIMSOLL_DEVICE_API int cudaDeviceGetLimit(std::size_t* value, int limit) {
  if (limit < 0 || limit >= static_cast<int>(kLimits)) return give(Status::invalid_value);
  *value = limits[limit];
  return 0;
}
PLIMSOLL_DEVICE_API int cudaDeviceSetLimit(int limit, std::size_t value) {
  if (limit < 0 || limit >= static_cast<int>(kLimits)) return give(Status::invalid_value);
  limits[limit] = value;
  return 0;
}
PLIMSOLL_DEVICE_API int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return 0;
}
PLIMSOLL_DEVICE_API int cudaGetDeviceFlags(unsigned* flags) {
  *flags = 8;  // host memory can be mapped
  return 0;
}
PLIMSOLL_DEVICE_API int cudaSetDeviceFlags(unsigned) { return 0; }
PLIMSOLL_DEVICE_API int cudaProfilerStart() { return 0; }
PLIMSOLL_DEVICE_API int cudaProfilerStop() { return 0; }

PLIMSOLL_DEVICE_API int cudaGetLastError() {
  const auto last = thread_state().last_error;
  thread_state().last_error = Status::ok;
  return static_cast<int>(last);
}
PLIMSOLL_DEVICE_API int cudaPeekAtLastError() { return static_cast<int>(thread_state().last_error); }
PLIMSOLL_DEVICE_API const char* cudaGetErrorString(int error) {
  const char* text = text_of(static_cast<Status>(error));
  return text == nullptr ? "unrecognized error code" : text;
}
PLIMSOLL_DEVICE_API const char* cudaGetErrorName(int error) {
  const char* name = name_of(static_cast<Status>(error));
  static thread_local std::string full;
  full = name == nullptr ? "unrecognized error code" : error == 0 ? std::string("cudaSuccess") : "cudaError" + std::string(name);
  return full.c_str();
}

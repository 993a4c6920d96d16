// The runtime's devices, their properties, and errors.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "device_properties.hpp"
#include "rehearse/device/core/properties.hpp"
#include "rehearse/device/core/settings.hpp"
#include "vendor.hpp"

using namespace plimsoll::device;

namespace {

// What each generation of the runtime answers about itself: the newest toolkit of its major version whose names are known here.
#if PLIMSOLL_HIP
constexpr int kVersion = PLIMSOLL_HIP_MAJOR < 7 ? 60443484 : 70200000;  // 6.4.43484, 7.2
constexpr int kDriverVersion = kVersion;
constexpr int kLeastPriority = 1, kGreatestPriority = -1;
#else
constexpr int kVersion = PLIMSOLL_CUDA_MAJOR < 13 ? 12090 : 13020;
constexpr int kDriverVersion = 13020;  // a driver runs the toolkits before it
constexpr int kLeastPriority = 0, kGreatestPriority = -5;
#endif
constexpr std::size_t kLimits = 8;
std::size_t limits[kLimits] = {1024, 1048576, 8388608, 0, 2048, 32, 0, 0};  // stack, printf, heap, depth, pending launches, L2 fetch, …

bool is_device(int device) { return device >= 0 && device < settings().devices; }

void fill(DeviceProperties* p, int device) {
  const Limits& own = own_limits();
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
  p->clusterLaunch = PLIMSOLL_HIP ? 0 : attribute(120);
#if PLIMSOLL_HIP
  p->regsPerBlock = p->regsPerMultiprocessor = own.registers_per_processor;
  p->maxSharedMemoryPerMultiProcessor = own.shared_per_processor;
  std::snprintf(p->gcnArchName, sizeof p->gcnArchName, "%s", settings().arch.c_str());
  std::sscanf(settings().arch.c_str(), "gfx%1d%1d", &p->major, &p->minor);
  p->isLargeBar = 1;
#endif
#if PLIMSOLL_HIP || PLIMSOLL_CUDA_MAJOR < 13
  p->clockRate = own.clock_khz;
  p->memoryClockRate = own.memory_clock_khz;
  p->deviceOverlap = 1;
#endif
}

#if PLIMSOLL_HIP
/// hipDeviceAttribute_t, from the structure with the same answers; 0 for those not listed.
int hip_attribute(int number, int device) {
  DeviceProperties p;
  fill(&p, device);
  const std::map<int, int> answers = {
      {2, p.asyncEngineCount},
      {3, p.canMapHostMemory},
      {5, p.clockRate},
      {8, p.concurrentKernels},
      {10, p.cooperativeLaunch},
      {19, p.l2CacheSize},
      {23, p.major},
      {61, p.minor},
      {24, p.managedMemory},
      {25, p.maxBlocksPerMultiProcessor},
      {26, p.maxThreadsDim[0]},
      {27, p.maxThreadsDim[1]},
      {28, p.maxThreadsDim[2]},
      {29, p.maxGridSize[0]},
      {30, p.maxGridSize[1]},
      {31, p.maxGridSize[2]},
      {56, p.maxThreadsPerBlock},
      {57, p.maxThreadsPerMultiProcessor},
      {59, p.memoryBusWidth},
      {60, p.memoryClockRate},
      {63, p.multiProcessorCount},
      {10015, p.multiProcessorCount},
      {67, p.pciBusID},
      {71, p.regsPerBlock},
      {72, p.regsPerMultiprocessor},
      {87, p.warpSize},
      {74, static_cast<int>(p.sharedMemPerBlock)},
      {75, static_cast<int>(p.sharedMemPerBlockOptin)},
      {76, static_cast<int>(p.sharedMemPerMultiprocessor)},
      {10002, static_cast<int>(p.sharedMemPerMultiprocessor)},
      {83, static_cast<int>(p.totalConstMem)},
      {78, 1},
      {85, 1},
      {88, 1},
      {89, 1},
      {90, 1},
      {10011, 1},  // priorities, unified addresses, pools, virtual memory, registration, large BAR
  };
  const auto it = answers.find(number);
  return it == answers.end() ? 0 : it->second;
}
#endif

std::set<std::pair<int, int>>& peers() {
  static auto* const once = new std::set<std::pair<int, int>>;
  return *once;
}

}  // namespace

PLIMSOLL_DEVICE_API int NAME(GetDeviceCount)(int* count) {
  *count = settings().devices;
  return give(*count > 0 ? Status::ok : Status::no_device);
}
PLIMSOLL_DEVICE_API int NAME(GetDevice)(int* device) {
  *device = thread_state().device;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(SetDevice)(int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  thread_state().device = device;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(InitDevice)(int device, unsigned, unsigned) {
  return give(is_device(device) ? Status::ok : Status::invalid_device);
}

#if PLIMSOLL_HIP
PLIMSOLL_DEVICE_API int hipGetDevicePropertiesR0600(DeviceProperties* properties, int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  fill(properties, device);
  return 0;
}
// The structure before ROCm 6 is another one.
PLIMSOLL_DEVICE_API int hipGetDevicePropertiesR0000(void*, int) { return give(Status::not_supported); }
#elif PLIMSOLL_CUDA_MAJOR < 13
PLIMSOLL_DEVICE_API int NAME(GetDeviceProperties_v2)(DeviceProperties* properties, int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  fill(properties, device);
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(GetDeviceProperties)(void* properties, int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  DeviceProperties all;
  fill(&all, device);
  std::memcpy(properties, &all, kOldBytes);
  return 0;
}
#else
PLIMSOLL_DEVICE_API int NAME(GetDeviceProperties)(DeviceProperties* properties, int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  fill(properties, device);
  return 0;
}
#endif

PLIMSOLL_DEVICE_API int NAME(DeviceGetAttribute)(int* value, int number, int device) {
  if (!is_device(device)) return give(Status::invalid_device);
#if PLIMSOLL_HIP
  *value = hip_attribute(number, device);
#else
  *value = number == 33 ? device + 1 : attribute(number);  // 33: the PCI bus
#endif
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(DriverGetVersion)(int* version) {
  *version = kDriverVersion;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(RuntimeGetVersion)(int* version) {
  *version = kVersion;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(DeviceSynchronize)() {
  const auto held = lock();
  machine().synchronize_device(thread_state().device);
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(ThreadSynchronize)() { return NAME(DeviceSynchronize)(); }

PLIMSOLL_DEVICE_API int NAME(DeviceCanAccessPeer)(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return give(Status::invalid_device);
  *can = device != peer ? 1 : 0;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(DeviceEnablePeerAccess)(int peer, unsigned) {
  const int own = thread_state().device;
  if (!is_device(peer) || peer == own) return give(Status::invalid_device);
  const auto held = lock();
  return give(peers().insert({own, peer}).second ? Status::ok : Status::peer_access_already_enabled);
}
PLIMSOLL_DEVICE_API int NAME(DeviceDisablePeerAccess)(int peer) {
  const auto held = lock();
  return give(peers().erase({thread_state().device, peer}) > 0 ? Status::ok : Status::peer_access_not_enabled);
}
PLIMSOLL_DEVICE_API int NAME(DeviceGetP2PAttribute)(int* value, int attribute, int from, int to) {
  if (!is_device(from) || !is_device(to) || from == to) return give(Status::invalid_device);
  *value = attribute == 1 ? 0 : 1;  // rank 0; access, atomics and arrays supported
  return 0;
}

PLIMSOLL_DEVICE_API int NAME(DeviceGetPCIBusId)(char* text, int length, int device) {
  if (!is_device(device)) return give(Status::invalid_device);
  if (length <= 0) return give(Status::invalid_value);
  std::snprintf(text, static_cast<std::size_t>(length), "%s", pci_address(device).c_str());
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(DeviceGetByPCIBusId)(int* device, const char* text) {
  for (int i = 0; i < settings().devices; ++i) {
    if (pci_address(i) != text) continue;
    *device = i;
    return 0;
  }
  return give(Status::invalid_value);
}
PLIMSOLL_DEVICE_API int NAME(DeviceGetLimit)(std::size_t* value, int limit) {
  if (limit < 0 || limit >= static_cast<int>(kLimits)) return give(Status::invalid_value);
  *value = limits[limit];
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(DeviceSetLimit)(int limit, std::size_t value) {
  if (limit < 0 || limit >= static_cast<int>(kLimits)) return give(Status::invalid_value);
  limits[limit] = value;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(DeviceGetStreamPriorityRange)(int* least, int* greatest) {
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(GetDeviceFlags)(unsigned* flags) {
  *flags = 8;  // host memory can be mapped
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(SetDeviceFlags)(unsigned) { return 0; }
PLIMSOLL_DEVICE_API int NAME(ProfilerStart)() { return 0; }
PLIMSOLL_DEVICE_API int NAME(ProfilerStop)() { return 0; }

PLIMSOLL_DEVICE_API int NAME(GetLastError)() {
  const auto last = thread_state().last_error;
  thread_state().last_error = Status::ok;
  return static_cast<int>(last);
}
PLIMSOLL_DEVICE_API int NAME(PeekAtLastError)() { return static_cast<int>(thread_state().last_error); }
PLIMSOLL_DEVICE_API const char* NAME(GetErrorString)(int error) {
  const char* text = text_of(static_cast<Status>(error));
  return text == nullptr ? "unrecognized error code" : text;
}
PLIMSOLL_DEVICE_API const char* NAME(GetErrorName)(int error) {
  const char* name = name_of(static_cast<Status>(error));
  static thread_local std::string full;
  const bool hip_memory = PLIMSOLL_HIP && error == static_cast<int>(Status::out_of_memory);
  full = name == nullptr ? "unrecognized error code"
         : error == 0    ? std::string(PREFIX "Success")
         : hip_memory    ? std::string("hipErrorOutOfMemory")
                         : PREFIX "Error" + std::string(name);
  return full.c_str();
}

// HIP by dlopen: entry points with plain C types that are alike in ROCm 5, 6 and 7. The structures that are not are read at known
// offsets, the newest layout first.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "calibrate/gpu_backend.hpp"

namespace plimsoll::calibrate {
namespace {

// hip_runtime_api.h; the same numbers in 5.2 and 6.3.
constexpr int kClockRate = 5, kMultiprocessors = 63;
constexpr int kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;
constexpr unsigned kNonBlocking = 1, kFineGrained = 1;
// Offsets of gcnArchName in hipDeviceProp_t: 1,472 bytes since ROCm 6 (hipGetDevicePropertiesR0600), 792 before.
constexpr std::size_t kNewArchOffset = 1160, kOldArchOffset = 396, kPropertiesRoom = 4096;

struct HipCalls {
  int (*hipInit)(unsigned);
  int (*hipRuntimeGetVersion)(int*);
  const char* (*hipGetErrorName)(int);
  int (*hipGetDeviceCount)(int*);
  int (*hipSetDevice)(int);
  int (*hipDeviceGetName)(char*, int, int);
  int (*hipDeviceGetPCIBusId)(char*, int, int);
  int (*hipDeviceGetAttribute)(int*, int, int);
  int (*hipMemGetInfo)(std::size_t*, std::size_t*);
  int (*hipMalloc)(void**, std::size_t);
  int (*hipExtMallocWithFlags)(void**, std::size_t, unsigned);
  int (*hipFree)(void*);
  int (*hipHostMalloc)(void**, std::size_t, unsigned);
  int (*hipHostFree)(void*);
  int (*hipMemcpyAsync)(void*, const void*, std::size_t, int, void*);
  int (*hipMemsetAsync)(void*, int, std::size_t, void*);
  int (*hipModuleLoadData)(void**, const void*);
  int (*hipModuleGetFunction)(void**, void*, const char*);
  int (*hipModuleLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*hipStreamCreateWithFlags)(void**, unsigned);
  int (*hipStreamWaitEvent)(void*, void*, unsigned);
  int (*hipEventCreate)(void**);
  int (*hipEventDestroy)(void*);
  int (*hipEventRecord)(void*, void*);
  int (*hipEventSynchronize)(void*);
  int (*hipEventElapsedTime)(float*, void*, void*);
  int (*hipDeviceSynchronize)();
  int (*hipDeviceCanAccessPeer)(int*, int, int);
  int (*hipDeviceEnablePeerAccess)(int, unsigned);
};

/// Memory that is mapped page by page, since ROCm 5.
struct HipMapping {
  int (*hipMemAddressReserve)(void**, std::size_t, std::size_t, void*, unsigned long long);
  int (*hipMemAddressFree)(void*, std::size_t);
  int (*hipMemCreate)(void**, std::size_t, const MappedMemory*, unsigned long long);
  int (*hipMemRelease)(void*);
  int (*hipMemMap)(void*, std::size_t, std::size_t, void*, unsigned long long);
  int (*hipMemUnmap)(void*, std::size_t);
  int (*hipMemSetAccess)(void*, std::size_t, const MappedAccess*, std::size_t);
};

/// Fills one call; remembers the first that the library lacks.
template <class Function>
void fetch(const DynamicLibrary& library, const char* symbol, Function*& call, std::string& missing) {
  call = library.find<Function>(symbol);
  if (!call && missing.empty()) missing = symbol;
}

std::string fetch_all(const DynamicLibrary& library, HipCalls& hip) {
  std::string missing;
#define PLIMSOLL_HIP(symbol) fetch(library, #symbol, hip.symbol, missing)
  PLIMSOLL_HIP(hipInit);
  PLIMSOLL_HIP(hipRuntimeGetVersion);
  PLIMSOLL_HIP(hipGetErrorName);
  PLIMSOLL_HIP(hipGetDeviceCount);
  PLIMSOLL_HIP(hipSetDevice);
  PLIMSOLL_HIP(hipDeviceGetName);
  PLIMSOLL_HIP(hipDeviceGetPCIBusId);
  PLIMSOLL_HIP(hipDeviceGetAttribute);
  PLIMSOLL_HIP(hipMemGetInfo);
  PLIMSOLL_HIP(hipMalloc);
  PLIMSOLL_HIP(hipExtMallocWithFlags);
  PLIMSOLL_HIP(hipFree);
  PLIMSOLL_HIP(hipHostMalloc);
  PLIMSOLL_HIP(hipHostFree);
  PLIMSOLL_HIP(hipMemcpyAsync);
  PLIMSOLL_HIP(hipMemsetAsync);
  PLIMSOLL_HIP(hipModuleLoadData);
  PLIMSOLL_HIP(hipModuleGetFunction);
  PLIMSOLL_HIP(hipModuleLaunchKernel);
  PLIMSOLL_HIP(hipStreamCreateWithFlags);
  PLIMSOLL_HIP(hipStreamWaitEvent);
  PLIMSOLL_HIP(hipEventCreate);
  PLIMSOLL_HIP(hipEventDestroy);
  PLIMSOLL_HIP(hipEventRecord);
  PLIMSOLL_HIP(hipEventSynchronize);
  PLIMSOLL_HIP(hipEventElapsedTime);
  PLIMSOLL_HIP(hipDeviceSynchronize);
  PLIMSOLL_HIP(hipDeviceCanAccessPeer);
  PLIMSOLL_HIP(hipDeviceEnablePeerAccess);
#undef PLIMSOLL_HIP
  return missing;
}

/// True where the runtime has them all.
bool fetch_all(const DynamicLibrary& library, HipMapping& mapping) {
  std::string missing;
#define PLIMSOLL_HIP(symbol) fetch(library, #symbol, mapping.symbol, missing)
  PLIMSOLL_HIP(hipMemAddressReserve);
  PLIMSOLL_HIP(hipMemAddressFree);
  PLIMSOLL_HIP(hipMemCreate);
  PLIMSOLL_HIP(hipMemRelease);
  PLIMSOLL_HIP(hipMemMap);
  PLIMSOLL_HIP(hipMemUnmap);
  PLIMSOLL_HIP(hipMemSetAccess);
#undef PLIMSOLL_HIP
  return missing.empty();
}

class HipDriver : public GpuDriver {
 public:
  explicit HipDriver(std::unique_ptr<DynamicLibrary> library) : library_(std::move(library)) {
    missing_ = fetch_all(*library_, hip_);
    has_mapping_ = fetch_all(*library_, mapping_);
  }

  const std::string& missing() const { return missing_; }
  int initialise() { return hip_.hipInit(0); }

  std::string backend() const override { return "hip"; }
  std::string library() const override {
    int version = 0;
    hip_.hipRuntimeGetVersion(&version);
    return fmt::format("{} (HIP {}.{})", library_->name(), version / 10000000, version / 100000 % 100);
  }
  std::string error_name(int code) const override {
    const char* name = hip_.hipGetErrorName(code);
    return name ? name : "unknown error";
  }

  int count(int& devices) override { return hip_.hipGetDeviceCount(&devices); }
  int select(int device) override { return hip_.hipSetDevice(device); }
  int name(int device, std::string& text) override {
    char buffer[256] = "";
    const int code = hip_.hipDeviceGetName(buffer, sizeof buffer, device);
    text = buffer;
    return code;
  }
  int architecture(int device, std::string& text) override {
    using Properties = int(void*, int);
    std::array<char, kPropertiesRoom> room{};
    std::size_t offset = kNewArchOffset;
    auto* properties = library_->find<Properties>("hipGetDevicePropertiesR0600");
    if (!properties) {
      properties = library_->find<Properties>("hipGetDevicePropertiesR0000");
      if (!properties) properties = library_->find<Properties>("hipGetDeviceProperties");  // the old layout, also in a newer library
      offset = kOldArchOffset;
    }
    if (!properties) return 1;
    const int code = properties(room.data(), device);
    room.back() = '\0';
    text = room.data() + offset;
    return code;
  }
  const CodeObject* code_object(const std::string& architecture) override { return code_object_for_amd(architecture); }
  int compute_units(int device, int& units) override { return hip_.hipDeviceGetAttribute(&units, kMultiprocessors, device); }
  int clock_kilohertz(int device, int& clock) override { return hip_.hipDeviceGetAttribute(&clock, kClockRate, device); }
  int memory(std::size_t& free, std::size_t& total) override { return hip_.hipMemGetInfo(&free, &total); }

  std::string pci_address(int device) override {
    char text[32] = "";
    return hip_.hipDeviceGetPCIBusId(text, sizeof text, device) == 0 ? text : "";
  }

  int allocate(void** memory, std::size_t bytes) override { return hip_.hipMalloc(memory, bytes); }
  int allocate_shared(void** memory, std::size_t bytes) override {
    return hip_.hipExtMallocWithFlags(memory, bytes, kFineGrained);  // ordinary memory is coherent only between kernels
  }
  int release(void* memory) override { return hip_.hipFree(memory); }
  bool has_mapping() const override { return has_mapping_; }
  int reserve(void** range, std::size_t bytes) override { return mapping_.hipMemAddressReserve(range, bytes, 0, nullptr, 0); }
  int release_range(void* range, std::size_t bytes) override { return mapping_.hipMemAddressFree(range, bytes); }
  int map(void* at, std::size_t page, int device, void** handle) override {
    const MappedMemory memory = MappedMemory::on(device);
    const MappedAccess access = MappedAccess::on(device);
    if (const int code = mapping_.hipMemCreate(handle, page, &memory, 0); code != 0) return code;
    if (const int code = mapping_.hipMemMap(at, page, 0, *handle, 0); code != 0) return code;
    return mapping_.hipMemSetAccess(at, page, &access, 1);
  }
  int unmap(void* at, std::size_t page, void* handle) override {
    if (const int code = mapping_.hipMemUnmap(at, page); code != 0) return code;
    return mapping_.hipMemRelease(handle);
  }
  int allocate_host(void** memory, std::size_t bytes) override { return hip_.hipHostMalloc(memory, bytes, 0); }
  int release_host(void* memory) override { return hip_.hipHostFree(memory); }
  int copy(void* to, const void* from, std::size_t bytes, CopyDirection direction, void* stream) override {
    const int kind = direction == CopyDirection::host_to_device   ? kHostToDevice
                     : direction == CopyDirection::device_to_host ? kDeviceToHost
                                                                  : kDeviceToDevice;
    return hip_.hipMemcpyAsync(to, from, bytes, kind, stream);
  }
  int fill(void* to, int byte, std::size_t bytes, void* stream) override { return hip_.hipMemsetAsync(to, byte, bytes, stream); }

  int load(void** module, const CodeObject& object) override { return hip_.hipModuleLoadData(module, object.data); }
  int function(void** function, void* module, const char* name) override { return hip_.hipModuleGetFunction(function, module, name); }
  int launch(void* function, Launch launch, void* stream, void** arguments) override {
    return hip_.hipModuleLaunchKernel(function, launch.blocks, 1, 1, launch.threads, 1, 1, 0, stream, arguments, nullptr);
  }

  int create_stream(void** stream) override { return hip_.hipStreamCreateWithFlags(stream, kNonBlocking); }
  int wait_event(void* stream, void* event) override { return hip_.hipStreamWaitEvent(stream, event, 0); }
  int create_event(void** event) override { return hip_.hipEventCreate(event); }
  int destroy_event(void* event) override { return hip_.hipEventDestroy(event); }
  int record(void* event, void* stream) override { return hip_.hipEventRecord(event, stream); }
  int wait_for(void* event) override { return hip_.hipEventSynchronize(event); }
  int elapsed(float* milliseconds, void* from, void* to) override { return hip_.hipEventElapsedTime(milliseconds, from, to); }
  int synchronize() override { return hip_.hipDeviceSynchronize(); }

  int can_access_peer(int* can, int device, int peer) override { return hip_.hipDeviceCanAccessPeer(can, device, peer); }
  int enable_peer(int peer) override { return hip_.hipDeviceEnablePeerAccess(peer, 0); }

 private:
  std::unique_ptr<DynamicLibrary> library_;
  HipCalls hip_{};
  HipMapping mapping_{};
  bool has_mapping_ = false;
  std::string missing_;
};

}  // namespace

FoundDriver find_hip_driver() {
  auto library = std::make_unique<DynamicLibrary>(rocm_candidates("libamdhip64.so", 12, 5), "PLIMSOLL_HIP_LIBRARY");
  if (!library->loaded()) return {nullptr, "no HIP runtime: " + library->reason()};
  const std::string name = library->name();
  auto driver = std::make_unique<HipDriver>(std::move(library));
  if (!driver->missing().empty()) return {nullptr, name + " lacks " + driver->missing()};
  if (const int code = driver->initialise(); code != 0)
    return {nullptr, fmt::format("{}: hipInit says {} ({}): is the amdgpu driver loaded, and may this user open /dev/kfd?", name,
                                 driver->error_name(code), code)};
  return {std::move(driver), {}};
}

}  // namespace plimsoll::calibrate

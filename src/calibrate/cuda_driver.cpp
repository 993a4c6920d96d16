// CUDA's driver interface by dlopen: libcuda.so.1, the same name for all versions. PTX is compiled by the driver for its device.
#include <fmt/format.h>

#include "calibrate/gpu_backend.hpp"

namespace plimsoll::calibrate {
namespace {

// cuda.h
constexpr int kClockRate = 13, kMultiprocessors = 16, kMajor = 75, kMinor = 76;
constexpr int kMostSharedBytes = 8;  // an attribute of functions
constexpr unsigned kNonBlocking = 1;
using Pointer = unsigned long long;  // CUdeviceptr
using Handle = unsigned long long;   // CUmemGenericAllocationHandle

struct CudaCalls {
  int (*cuInit)(unsigned);
  int (*cuDriverGetVersion)(int*);
  int (*cuGetErrorName)(int, const char**);
  int (*cuDeviceGetCount)(int*);
  int (*cuDeviceGet)(int*, int);
  int (*cuDeviceGetName)(char*, int, int);
  int (*cuDeviceGetPCIBusId)(char*, int, int);
  int (*cuDeviceGetAttribute)(int*, int, int);
  int (*cuDevicePrimaryCtxRetain)(void**, int);
  int (*cuCtxSetCurrent)(void*);
  int (*cuMemGetInfo)(std::size_t*, std::size_t*);
  int (*cuMemAlloc)(Pointer*, std::size_t);
  int (*cuMemFree)(Pointer);
  int (*cuMemHostAlloc)(void**, std::size_t, unsigned);
  int (*cuMemFreeHost)(void*);
  int (*cuMemcpyAsync)(Pointer, Pointer, std::size_t, void*);
  int (*cuMemsetD8Async)(Pointer, unsigned char, std::size_t, void*);
  int (*cuModuleLoadData)(void**, const void*);
  int (*cuModuleGetFunction)(void**, void*, const char*);
  int (*cuFuncSetAttribute)(void*, int, int);
  int (*cuLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*cuStreamCreate)(void**, unsigned);
  int (*cuStreamWaitEvent)(void*, void*, unsigned);
  int (*cuEventCreate)(void**, unsigned);
  int (*cuEventDestroy)(void*);
  int (*cuEventRecord)(void*, void*);
  int (*cuEventSynchronize)(void*);
  int (*cuEventElapsedTime)(float*, void*, void*);
  int (*cuCtxSynchronize)();
  int (*cuDeviceCanAccessPeer)(int*, int, int);
  int (*cuCtxEnablePeerAccess)(void*, unsigned);
};

/// Memory that is mapped page by page, since CUDA 10.2.
struct CudaMapping {
  int (*cuMemAddressReserve)(Pointer*, std::size_t, std::size_t, Pointer, unsigned long long);
  int (*cuMemAddressFree)(Pointer, std::size_t);
  int (*cuMemCreate)(Handle*, std::size_t, const MappedMemory*, unsigned long long);
  int (*cuMemRelease)(Handle);
  int (*cuMemMap)(Pointer, std::size_t, std::size_t, Handle, unsigned long long);
  int (*cuMemUnmap)(Pointer, std::size_t);
  int (*cuMemSetAccess)(Pointer, std::size_t, const MappedAccess*, std::size_t);
};

template <class Function>
void fetch(const DynamicLibrary& library, const char* symbol, Function*& call, std::string& missing) {
  call = library.find<Function>(symbol);
  if (!call && missing.empty()) missing = symbol;
}

std::string fetch_all(const DynamicLibrary& library, CudaCalls& cuda) {
  std::string missing;
#define PLIMSOLL_CUDA(member, symbol) fetch(library, symbol, cuda.member, missing)
  PLIMSOLL_CUDA(cuInit, "cuInit");
  PLIMSOLL_CUDA(cuDriverGetVersion, "cuDriverGetVersion");
  PLIMSOLL_CUDA(cuGetErrorName, "cuGetErrorName");
  PLIMSOLL_CUDA(cuDeviceGetCount, "cuDeviceGetCount");
  PLIMSOLL_CUDA(cuDeviceGet, "cuDeviceGet");
  PLIMSOLL_CUDA(cuDeviceGetName, "cuDeviceGetName");
  PLIMSOLL_CUDA(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId");
  PLIMSOLL_CUDA(cuDeviceGetAttribute, "cuDeviceGetAttribute");
  PLIMSOLL_CUDA(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  PLIMSOLL_CUDA(cuCtxSetCurrent, "cuCtxSetCurrent");
  PLIMSOLL_CUDA(cuMemGetInfo, "cuMemGetInfo_v2");
  PLIMSOLL_CUDA(cuMemAlloc, "cuMemAlloc_v2");
  PLIMSOLL_CUDA(cuMemFree, "cuMemFree_v2");
  PLIMSOLL_CUDA(cuMemHostAlloc, "cuMemHostAlloc");
  PLIMSOLL_CUDA(cuMemFreeHost, "cuMemFreeHost");
  PLIMSOLL_CUDA(cuMemcpyAsync, "cuMemcpyAsync");
  PLIMSOLL_CUDA(cuMemsetD8Async, "cuMemsetD8Async");
  PLIMSOLL_CUDA(cuModuleLoadData, "cuModuleLoadData");
  PLIMSOLL_CUDA(cuModuleGetFunction, "cuModuleGetFunction");
  PLIMSOLL_CUDA(cuFuncSetAttribute, "cuFuncSetAttribute");
  PLIMSOLL_CUDA(cuLaunchKernel, "cuLaunchKernel");
  PLIMSOLL_CUDA(cuStreamCreate, "cuStreamCreate");
  PLIMSOLL_CUDA(cuStreamWaitEvent, "cuStreamWaitEvent");
  PLIMSOLL_CUDA(cuEventCreate, "cuEventCreate");
  PLIMSOLL_CUDA(cuEventDestroy, "cuEventDestroy_v2");
  PLIMSOLL_CUDA(cuEventRecord, "cuEventRecord");
  PLIMSOLL_CUDA(cuEventSynchronize, "cuEventSynchronize");
  PLIMSOLL_CUDA(cuEventElapsedTime, "cuEventElapsedTime");
  PLIMSOLL_CUDA(cuCtxSynchronize, "cuCtxSynchronize");
  PLIMSOLL_CUDA(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer");
  PLIMSOLL_CUDA(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess");
#undef PLIMSOLL_CUDA
  return missing;
}

/// True where the driver has them all.
bool fetch_all(const DynamicLibrary& library, CudaMapping& mapping) {
  std::string missing;
#define PLIMSOLL_CUDA(symbol) fetch(library, #symbol, mapping.symbol, missing)
  PLIMSOLL_CUDA(cuMemAddressReserve);
  PLIMSOLL_CUDA(cuMemAddressFree);
  PLIMSOLL_CUDA(cuMemCreate);
  PLIMSOLL_CUDA(cuMemRelease);
  PLIMSOLL_CUDA(cuMemMap);
  PLIMSOLL_CUDA(cuMemUnmap);
  PLIMSOLL_CUDA(cuMemSetAccess);
#undef PLIMSOLL_CUDA
  return missing.empty();
}

Pointer address(const void* memory) { return reinterpret_cast<Pointer>(memory); }

class CudaDriver : public GpuDriver {
 public:
  explicit CudaDriver(std::unique_ptr<DynamicLibrary> library) : library_(std::move(library)) {
    missing_ = fetch_all(*library_, cuda_);
    has_mapping_ = fetch_all(*library_, mapping_);
  }

  const std::string& missing() const { return missing_; }
  int initialise() { return cuda_.cuInit(0); }

  std::string backend() const override { return "cuda"; }
  std::string library() const override {
    int version = 0;
    cuda_.cuDriverGetVersion(&version);
    return fmt::format("{} (CUDA {}.{})", library_->name(), version / 1000, version % 1000 / 10);
  }
  std::string error_name(int code) const override {
    const char* name = nullptr;
    cuda_.cuGetErrorName(code, &name);
    return name ? name : "unknown error";
  }

  int count(int& devices) override { return cuda_.cuDeviceGetCount(&devices); }
  int select(int device) override {
    int id = 0;
    void* context = nullptr;
    if (const int code = cuda_.cuDeviceGet(&id, device); code != 0) return code;
    if (const int code = cuda_.cuDevicePrimaryCtxRetain(&context, id); code != 0) return code;
    return cuda_.cuCtxSetCurrent(context);
  }
  int name(int device, std::string& text) override {
    char buffer[256] = "";
    const int code = cuda_.cuDeviceGetName(buffer, sizeof buffer, device);
    text = buffer;
    return code;
  }
  int architecture(int device, std::string& text) override {
    if (const int code = cuda_.cuDeviceGetAttribute(&major_, kMajor, device); code != 0) return code;
    const int code = cuda_.cuDeviceGetAttribute(&minor_, kMinor, device);
    text = fmt::format("sm_{}{}", major_, minor_);
    return code;
  }
  const CodeObject* code_object(const std::string&) override { return code_object_for_nvidia(major_, minor_); }
  int compute_units(int device, int& units) override { return cuda_.cuDeviceGetAttribute(&units, kMultiprocessors, device); }
  int clock_kilohertz(int device, int& clock) override { return cuda_.cuDeviceGetAttribute(&clock, kClockRate, device); }
  int memory(std::size_t& free, std::size_t& total) override { return cuda_.cuMemGetInfo(&free, &total); }

  std::string pci_address(int device) override {
    char text[32] = "";
    return cuda_.cuDeviceGetPCIBusId(text, sizeof text, device) == 0 ? text : "";
  }

  int allocate(void** memory, std::size_t bytes) override {
    Pointer given = 0;
    const int code = cuda_.cuMemAlloc(&given, bytes);
    *memory = reinterpret_cast<void*>(given);
    return code;
  }
  int allocate_shared(void** memory, std::size_t bytes) override { return allocate(memory, bytes); }
  int release(void* memory) override { return cuda_.cuMemFree(address(memory)); }
  bool has_mapping() const override { return has_mapping_; }
  int reserve(void** range, std::size_t bytes) override {
    Pointer given = 0;
    const int code = mapping_.cuMemAddressReserve(&given, bytes, 0, 0, 0);
    *range = reinterpret_cast<void*>(given);
    return code;
  }
  int release_range(void* range, std::size_t bytes) override { return mapping_.cuMemAddressFree(address(range), bytes); }
  int map(void* at, std::size_t page, int device, void** handle) override {
    const MappedMemory memory = MappedMemory::on(device);
    const MappedAccess access = MappedAccess::on(device);
    Handle made = 0;
    if (const int code = mapping_.cuMemCreate(&made, page, &memory, 0); code != 0) return code;
    *handle = reinterpret_cast<void*>(made);
    if (const int code = mapping_.cuMemMap(address(at), page, 0, made, 0); code != 0) return code;
    return mapping_.cuMemSetAccess(address(at), page, &access, 1);
  }
  int unmap(void* at, std::size_t page, void* handle) override {
    if (const int code = mapping_.cuMemUnmap(address(at), page); code != 0) return code;
    return mapping_.cuMemRelease(address(handle));
  }
  int allocate_host(void** memory, std::size_t bytes) override { return cuda_.cuMemHostAlloc(memory, bytes, 0); }
  int release_host(void* memory) override { return cuda_.cuMemFreeHost(memory); }
  int copy(void* to, const void* from, std::size_t bytes, CopyDirection, void* stream) override {
    return cuda_.cuMemcpyAsync(address(to), address(from), bytes, stream);  // unified addresses say the direction
  }
  int fill(void* to, int byte, std::size_t bytes, void* stream) override {
    return cuda_.cuMemsetD8Async(address(to), static_cast<unsigned char>(byte), bytes, stream);
  }

  int load(void** module, const CodeObject& object) override { return cuda_.cuModuleLoadData(module, object.data); }
  int function(void** function, void* module, const char* name) override { return cuda_.cuModuleGetFunction(function, module, name); }
  int launch(void* function, Launch launch, void* stream, void** arguments) override {
    if (launch.shared_bytes > 0) {
      const int code = cuda_.cuFuncSetAttribute(function, kMostSharedBytes, static_cast<int>(launch.shared_bytes));
      if (code != 0) return code;
    }
    return cuda_.cuLaunchKernel(function, launch.blocks, 1, 1, launch.threads, 1, 1, launch.shared_bytes, stream, arguments, nullptr);
  }

  int create_stream(void** stream) override { return cuda_.cuStreamCreate(stream, kNonBlocking); }
  int wait_event(void* stream, void* event) override { return cuda_.cuStreamWaitEvent(stream, event, 0); }
  int create_event(void** event) override { return cuda_.cuEventCreate(event, 0); }
  int destroy_event(void* event) override { return cuda_.cuEventDestroy(event); }
  int record(void* event, void* stream) override { return cuda_.cuEventRecord(event, stream); }
  int wait_for(void* event) override { return cuda_.cuEventSynchronize(event); }
  int elapsed(float* milliseconds, void* from, void* to) override { return cuda_.cuEventElapsedTime(milliseconds, from, to); }
  int synchronize() override { return cuda_.cuCtxSynchronize(); }

  int can_access_peer(int* can, int device, int peer) override { return cuda_.cuDeviceCanAccessPeer(can, device, peer); }
  int enable_peer(int peer) override {
    void* context = nullptr;
    if (const int code = cuda_.cuDevicePrimaryCtxRetain(&context, peer); code != 0) return code;
    return cuda_.cuCtxEnablePeerAccess(context, 0);
  }

 private:
  std::unique_ptr<DynamicLibrary> library_;
  CudaCalls cuda_{};
  CudaMapping mapping_{};
  bool has_mapping_ = false;
  std::string missing_;
  int major_ = 0, minor_ = 0;
};

}  // namespace

FoundDriver find_cuda_driver() {
  auto library = std::make_unique<DynamicLibrary>(std::vector<std::string>{"libcuda.so.1", "libcuda.so"}, "PLIMSOLL_CUDA_LIBRARY");
  if (!library->loaded()) return {nullptr, "no CUDA driver: " + library->reason()};
  const std::string name = library->name();
  auto driver = std::make_unique<CudaDriver>(std::move(library));
  if (!driver->missing().empty()) return {nullptr, name + " lacks " + driver->missing()};
  if (const int code = driver->initialise(); code != 0)
    return {nullptr, fmt::format("{}: cuInit says {} ({}): {}", name, driver->error_name(code), code, advice_on(code))};
  return {std::move(driver), {}};
}

}  // namespace plimsoll::calibrate

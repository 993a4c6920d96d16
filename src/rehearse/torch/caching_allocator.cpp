// Blocks of PyTorch's caching allocator, in order with the launches.
//
// libc10_cuda.so (libc10_hip.so) tells the profiler of every block it gives and takes back, through two functions that it imports from
// libc10.so; c10/core/Allocator.h declares them. A preloaded library that defines them is called in their place, in PyTorch 2.5 to 2.15.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

namespace {

/// c10::Device: its type (1 is CUDA, and HIP seen as CUDA; 20 is HIP) and its index.
struct Device {
  std::int8_t type;
  std::int8_t index;
};

/// c10::Stream, which c10::cuda::CUDAStream holds.
struct Stream {
  Device device;
  std::int64_t id;
};

using BlockFunction = void (*)(int action, std::uint64_t address, std::uint64_t bytes, void* stream, const char* stack);
using CurrentStream = Stream (*)(std::int8_t index);
using NativeStream = void* (*)(const Stream*);

// record::BlockAction
constexpr int kAllocate = 1, kFreeRequested = 2, kOutOfMemory = 8;

/// Functions of libraries that are loaded later than this one: looked up at the first block.
struct Functions {
  BlockFunction block = reinterpret_cast<BlockFunction>(dlsym(RTLD_DEFAULT, "plimsoll_rehearse_block"));
  CurrentStream current = reinterpret_cast<CurrentStream>(dlsym(RTLD_DEFAULT, "_ZN3c104cuda20getCurrentCUDAStreamEa"));
  NativeStream native = reinterpret_cast<NativeStream>(dlsym(RTLD_DEFAULT, "_ZNK3c104cuda10CUDAStream6streamEv"));
};

const Functions& functions() {
  static const Functions kFunctions;
  return kFunctions;
}

/// The stream that a block belongs to: the current one of the thread that asks for it.
void* current_stream(Device device) {
  const Functions& known = functions();
  if (known.current == nullptr || known.native == nullptr) return nullptr;
  const Stream stream = known.current(device.index);
  return known.native(&stream);
}

bool on_device(Device device) { return device.type == 1 || device.type == 20; }

void report(int action, void* address, std::int64_t bytes, Device device) {
  const Functions& known = functions();
  if (known.block == nullptr || !on_device(device)) return;
  known.block(action, reinterpret_cast<std::uint64_t>(address), static_cast<std::uint64_t>(bytes), current_stream(device), nullptr);
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

/// c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, c10::Device): bytes of a block, negative when it is given back.
EXPORTED void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void* address, std::int64_t bytes, std::size_t, std::size_t,
                                                                    Device device) {
  report(bytes >= 0 ? kAllocate : kFreeRequested, address, bytes >= 0 ? bytes : -bytes, device);
}

/// c10::reportOutOfMemoryToProfiler(int64_t, size_t, size_t, c10::Device)
EXPORTED void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(std::int64_t bytes, std::size_t, std::size_t, Device device) {
  report(kOutOfMemory, nullptr, bytes, device);
}

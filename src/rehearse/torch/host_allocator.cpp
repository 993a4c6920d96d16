// Large tensors on the host: address space without memory behind it until a program writes there. Linux refuses a single request of more
// than the machine has, and a plan for a large node is rehearsed on a small one.
//
// libc10.so gets the memory of tensors on the host by two functions that it exports (c10/core/impl/alloc_cpu.h) and calls as anybody else
// would; a library loaded before it that defines them is called in their place, in PyTorch 2.5 to 2.15.
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstddef>
#include <map>
#include <mutex>

namespace {

constexpr std::size_t kLarge = std::size_t{64} << 20;  // smaller ones are PyTorch's own business

/// PyTorch's own, from the library that these hide.
struct Functions {
  void* library = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
  void* (*allocate)(std::size_t) = reinterpret_cast<void* (*)(std::size_t)>(dlsym(library, "_ZN3c109alloc_cpuEm"));
  void (*release)(void*) = reinterpret_cast<void (*)(void*)>(dlsym(library, "_ZN3c108free_cpuEPv"));
};

const Functions& functions() {
  static const Functions kFunctions;
  return kFunctions;
}

/// Blocks that are reserved here, and their bytes. Never destroyed: tensors may outlive this library's own end.
struct Reserved {
  std::mutex mutex;
  std::map<void*, std::size_t> blocks;
};

Reserved& reserved() {
  static Reserved* const kReserved = new Reserved;
  return *kReserved;
}

/// nullptr where a limit of the process forbids it.
void* reserve(std::size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  const std::lock_guard<std::mutex> lock(reserved().mutex);
  reserved().blocks[address] = bytes;
  return address;
}

/// Bytes of a block that was reserved here, which is forgotten; 0: it was not.
std::size_t take(void* address) {
  const std::lock_guard<std::mutex> lock(reserved().mutex);
  const auto found = reserved().blocks.find(address);
  if (found == reserved().blocks.end()) return 0;
  const std::size_t bytes = found->second;
  reserved().blocks.erase(found);
  return bytes;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

/// c10::alloc_cpu(size_t). What cannot be reserved is left to PyTorch, whose error names the size.
EXPORTED void* _ZN3c109alloc_cpuEm(std::size_t bytes) {
  void* address = bytes < kLarge ? nullptr : reserve(bytes);
  return address != nullptr ? address : functions().allocate(bytes);
}

/// c10::free_cpu(void*)
EXPORTED void _ZN3c108free_cpuEPv(void* address) {
  const std::size_t bytes = take(address);
  if (bytes != 0)
    munmap(address, bytes);
  else
    functions().release(address);
}

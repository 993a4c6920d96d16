// The runtime's memory: devices, page-locked and managed memory, copies, pools.
#include <unistd.h>

#include <cstring>
#include <map>

#include "rehearse/device/core/settings.hpp"
#include "vendor.hpp"

using namespace plimsoll::device;

namespace {

struct Location {
  int type;
  int id;
};

struct PoolProperties {
  int allocation_type, handle_types;
  Location location;
  void* security;
  std::size_t largest;
  unsigned short usage;
  unsigned char reserved[54];
};
static_assert(sizeof(PoolProperties) == 88);

// A pool holds exactly what is allocated from it: nothing is kept for reuse, so what it reserves is what is used.
struct Pool {
  int device = 0;
  std::uint64_t threshold = 0, used = 0, peak = 0;
  std::map<int, int> options;
};

struct Pools {
  std::map<int, Pool*> of_device;  ///< the default one
  std::map<void*, std::pair<Pool*, std::size_t>> blocks;
};
Pools& pools() {
  static Pools* const once = new Pools;
  return *once;
}
Pool* default_pool(int device) {
  Pool*& pool = pools().of_device[device];
  if (pool == nullptr) pool = new Pool{device, 0, 0, 0, {}};
  return pool;
}

enum PoolAttribute { kThreshold = 4, kReserved = 5, kReservedHigh = 6, kUsed = 7, kUsedHigh = 8 };

Status allocate_from(void** address, std::size_t bytes, Pool* pool, Handle stream) {
  return with_stream(stream, [&](Stream& on) {
    const Status status = allocate(address, bytes, &on);
    if (status != Status::ok || bytes == 0) return status;
    const auto held = lock();
    pools().blocks[*address] = {pool, bytes};
    pool->used += bytes;
    pool->peak = pool->peak < pool->used ? pool->used : pool->peak;
    return status;
  });
}

Status copy_on(void* to, const void* from, std::size_t bytes, Handle stream, bool synchronous) {
  return with_stream(stream, [&](Stream& on) { return copy(to, from, bytes, on, synchronous); });
}

Status rows_on(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height,
               Handle stream, bool synchronous) {
  return with_stream(stream, [&](Stream& on) { return copy_rows(to, to_pitch, from, from_pitch, width, height, on, synchronous); });
}

Status fill_on(void* to, int value, std::size_t bytes, Handle stream) {
  return with_stream(stream, [&](Stream& on) { return fill(to, static_cast<unsigned char>(value), 1, bytes, on); });
}

/// Variables of the program's device code, by the address of their host shadow.
std::map<const void*, std::pair<void*, std::size_t>>& variables() {
  static auto* const once = new std::map<const void*, std::pair<void*, std::size_t>>;
  return *once;
}

/// Where the variable lies on the device; memory for it is taken at its first use (a module's variables are part of the context).
Status variable(void** address, std::size_t* bytes, const void* symbol) {
  const auto held = lock();
  const auto it = variables().find(symbol);
  if (it == variables().end()) return Status::not_found;
  if (it->second.first == nullptr) it->second.first = new char[it->second.second]();
  *address = it->second.first;
  *bytes = it->second.second;
  return Status::ok;
}

struct PitchedPointer {
  char* start;
  std::size_t pitch, width, height;
};
struct Position {
  std::size_t x, y, z;
};
struct Copy3d {
  Handle from_array;
  Position from_at;
  PitchedPointer from;
  Handle to_array;
  Position to_at;
  PitchedPointer to;
  std::size_t width, height, depth;
  int kind;
};
static_assert(sizeof(Copy3d) == 160);

Status copy_boxes(const Copy3d& c, Handle stream, bool synchronous) {
  if (c.from_array != nullptr || c.to_array != nullptr) return Status::not_supported;
  for (std::size_t z = 0; z < c.depth; ++z) {
    char* to = c.to.start + ((c.to_at.z + z) * c.to.height + c.to_at.y) * c.to.pitch + c.to_at.x;
    const char* from = c.from.start + ((c.from_at.z + z) * c.from.height + c.from_at.y) * c.from.pitch + c.from_at.x;
    const Status status = rows_on(to, c.to.pitch, from, c.from.pitch, c.width, c.height, stream, synchronous);
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

}  // namespace

PLIMSOLL_DEVICE_API int NAME(Malloc)(void** address, std::size_t bytes) { return give(allocate(address, bytes)); }
PLIMSOLL_DEVICE_API int NAME(Free)(void* address) { return give(release(address)); }
PLIMSOLL_DEVICE_API int NAME(MallocPitch)(void** address, std::size_t* pitch, std::size_t width, std::size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return give(allocate(address, *pitch * height));
}
PLIMSOLL_DEVICE_API int NAME(MallocManaged)(void** address, std::size_t bytes, unsigned) {
  return give(allocate_host(address, bytes, Where::managed));
}
PLIMSOLL_DEVICE_API int NAME(MallocHost)(void** address, std::size_t bytes) { return give(allocate_host(address, bytes)); }
PLIMSOLL_DEVICE_API int NAME(HostAlloc)(void** address, std::size_t bytes, unsigned) { return give(allocate_host(address, bytes)); }
PLIMSOLL_DEVICE_API int NAME(FreeHost)(void* address) { return give(release_host(address)); }
PLIMSOLL_DEVICE_API int NAME(HostRegister)(void* address, std::size_t bytes, unsigned) { return give(register_host(address, bytes)); }
PLIMSOLL_DEVICE_API int NAME(HostUnregister)(void* address) { return give(unregister_host(address)); }
PLIMSOLL_DEVICE_API int NAME(HostGetDevicePointer)(void** device, void* host, unsigned) {
  *device = host;
  return give(place_of(host).where == Where::host ? Status::invalid_value : Status::ok);
}
PLIMSOLL_DEVICE_API int NAME(HostGetFlags)(unsigned* flags, void* host) {
  *flags = 0;
  return give(place_of(host).where == Where::host ? Status::invalid_value : Status::ok);
}
PLIMSOLL_DEVICE_API int NAME(MemGetInfo)(std::size_t* free_bytes, std::size_t* total_bytes) {
  std::uint64_t left = 0, total = 0;
  memory_info(&left, &total);
  *free_bytes = left;
  *total_bytes = total;
  return 0;
}

PLIMSOLL_DEVICE_API int NAME(PointerGetAttributes)(void* attributes, const void* pointer) {
  struct Attributes {
    int type, device;
    void *on_device, *on_host;
#if PLIMSOLL_HIP
    int managed;
    unsigned flags;
#elif PLIMSOLL_CUDA_MAJOR >= 13
    long reserved[8];
#endif
  };
  const Place place = place_of(pointer);
  Attributes a{};
  void* const same = const_cast<void*>(pointer);
  a.type = place.where == Where::device ? 2 : place.where == Where::managed ? 3 : place.where == Where::pinned ? 1 : 0;
  a.device = place.where == Where::host ? -2 : place.device;
  a.on_device = place.where == Where::host ? nullptr : same;
  a.on_host = place.where == Where::device ? nullptr : same;
#if PLIMSOLL_HIP
  a.managed = place.where == Where::managed ? 1 : 0;
#endif
  std::memcpy(attributes, &a, sizeof a);
  return 0;
}

PLIMSOLL_DEVICE_API int NAME(Memcpy)(void* to, const void* from, std::size_t bytes, int) {
  return give(copy_on(to, from, bytes, nullptr, true));
}
PLIMSOLL_DEVICE_API int NAME(MemcpyAsync)(void* to, const void* from, std::size_t bytes, int, Handle stream) {
  return give(copy_on(to, from, bytes, stream, false));
}
PLIMSOLL_DEVICE_API int NAME(MemcpyPeer)(void* to, int, const void* from, int, std::size_t bytes) {
  return give(copy_on(to, from, bytes, nullptr, true));
}
PLIMSOLL_DEVICE_API int NAME(MemcpyPeerAsync)(void* to, int, const void* from, int, std::size_t bytes, Handle stream) {
  return give(copy_on(to, from, bytes, stream, false));
}
PLIMSOLL_DEVICE_API int NAME(Memcpy2D)(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                                       std::size_t height, int) {
  return give(rows_on(to, to_pitch, from, from_pitch, width, height, nullptr, true));
}
PLIMSOLL_DEVICE_API int NAME(Memcpy2DAsync)(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                                            std::size_t height, int, Handle stream) {
  return give(rows_on(to, to_pitch, from, from_pitch, width, height, stream, false));
}
PLIMSOLL_DEVICE_API int NAME(Memcpy3D)(const Copy3d* parameters) { return give(copy_boxes(*parameters, nullptr, true)); }
PLIMSOLL_DEVICE_API int NAME(Memcpy3DAsync)(const Copy3d* parameters, Handle stream) {
  return give(copy_boxes(*parameters, stream, false));
}
PLIMSOLL_DEVICE_API int NAME(Memset)(void* to, int value, std::size_t bytes) { return give(fill_on(to, value, bytes, nullptr)); }
PLIMSOLL_DEVICE_API int NAME(MemsetAsync)(void* to, int value, std::size_t bytes, Handle stream) {
  return give(fill_on(to, value, bytes, stream));
}

PLIMSOLL_DEVICE_API void INTERNAL(RegisterVar)(void**, char* host, char*, const char*, int, std::size_t bytes, int, int) {
  const auto held = lock();
  variables()[host] = {nullptr, bytes};
}
PLIMSOLL_DEVICE_API int NAME(GetSymbolAddress)(void** address, const void* symbol) {
  std::size_t bytes = 0;
  return give(variable(address, &bytes, symbol));
}
PLIMSOLL_DEVICE_API int NAME(GetSymbolSize)(std::size_t* bytes, const void* symbol) {
  void* address = nullptr;
  return give(variable(&address, bytes, symbol));
}
PLIMSOLL_DEVICE_API int NAME(MemcpyToSymbolAsync)(const void* symbol, const void* from, std::size_t count, std::size_t offset, int,
                                                  Handle stream) {
  void* address = nullptr;
  std::size_t bytes = 0;
  const Status status = variable(&address, &bytes, symbol);
  if (status != Status::ok) return give(status);
  if (offset > bytes || count > bytes - offset) return give(Status::invalid_value);
  return give(copy_on(static_cast<char*>(address) + offset, from, count, stream, false));
}
PLIMSOLL_DEVICE_API int NAME(MemcpyToSymbol)(const void* symbol, const void* from, std::size_t count, std::size_t offset, int kind) {
  return NAME(MemcpyToSymbolAsync)(symbol, from, count, offset, kind, nullptr);
}
PLIMSOLL_DEVICE_API int NAME(MemcpyFromSymbolAsync)(void* to, const void* symbol, std::size_t count, std::size_t offset, int,
                                                    Handle stream) {
  void* address = nullptr;
  std::size_t bytes = 0;
  const Status status = variable(&address, &bytes, symbol);
  if (status != Status::ok) return give(status);
  if (offset > bytes || count > bytes - offset) return give(Status::invalid_value);
  return give(copy_on(to, static_cast<char*>(address) + offset, count, stream, false));
}
PLIMSOLL_DEVICE_API int NAME(MemcpyFromSymbol)(void* to, const void* symbol, std::size_t count, std::size_t offset, int kind) {
  return NAME(MemcpyFromSymbolAsync)(to, symbol, count, offset, kind, nullptr);
}

PLIMSOLL_DEVICE_API int NAME(MallocAsync)(void** address, std::size_t bytes, Handle stream) {
  return give(allocate_from(address, bytes, default_pool(thread_state().device), stream));
}
PLIMSOLL_DEVICE_API int NAME(MallocFromPoolAsync)(void** address, std::size_t bytes, Handle pool, Handle stream) {
  return give(allocate_from(address, bytes, static_cast<Pool*>(pool), stream));
}
PLIMSOLL_DEVICE_API int NAME(FreeAsync)(void* address, Handle stream) {
  {
    const auto held = lock();
    const auto it = pools().blocks.find(address);
    if (it != pools().blocks.end()) {
      it->second.first->used -= it->second.second;
      pools().blocks.erase(it);
    }
  }
  return give(with_stream(stream, [&](Stream& on) { return release(address, &on); }));
}
PLIMSOLL_DEVICE_API int NAME(DeviceGetDefaultMemPool)(Handle* pool, int device) {
  if (device < 0 || device >= settings().devices) return give(Status::invalid_device);
  const auto held = lock();
  *pool = default_pool(device);
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(DeviceGetMemPool)(Handle* pool, int device) { return NAME(DeviceGetDefaultMemPool)(pool, device); }
PLIMSOLL_DEVICE_API int NAME(MemPoolCreate)(Handle* pool, const PoolProperties* properties) {
  *pool = new Pool{properties->location.id, 0, 0, 0, {}};
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(MemPoolDestroy)(Handle) { return 0; }  // blocks may outlive it
PLIMSOLL_DEVICE_API int NAME(MemPoolTrimTo)(Handle, std::size_t) { return 0; }
PLIMSOLL_DEVICE_API int NAME(MemPoolSetAccess)(Handle, const void*, std::size_t) { return 0; }
PLIMSOLL_DEVICE_API int NAME(MemPoolGetAttribute)(Handle handle, int attribute, void* value) {
  const auto held = lock();
  Pool& pool = *static_cast<Pool*>(handle);
  const std::uint64_t wide = attribute == kThreshold                        ? pool.threshold
                             : attribute == kReserved || attribute == kUsed ? pool.used
                                                                            : pool.peak;
  if (attribute < kThreshold)
    *static_cast<int*>(value) = pool.options.count(attribute) != 0 ? pool.options[attribute] : 1;
  else
    std::memcpy(value, &wide, sizeof wide);
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(MemPoolSetAttribute)(Handle handle, int attribute, void* value) {
  const auto held = lock();
  Pool& pool = *static_cast<Pool*>(handle);
  if (attribute < kThreshold) pool.options[attribute] = *static_cast<int*>(value);
  if (attribute == kThreshold) std::memcpy(&pool.threshold, value, sizeof pool.threshold);
  if (attribute == kReservedHigh || attribute == kUsedHigh) pool.peak = pool.used;
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(DeviceGetGraphMemAttribute)(int, int, void* value) {
  const std::uint64_t none = 0;
  std::memcpy(value, &none, sizeof none);
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(DeviceSetGraphMemAttribute)(int, int, void*) { return 0; }

// Handles for other processes say what they stand for: who opens one in another process gets addresses of its own.
namespace {
struct IpcHandle {
  std::uint64_t process, address, bytes, device;
  char unused[32];
};
}  // namespace
PLIMSOLL_DEVICE_API int NAME(IpcGetMemHandle)(IpcHandle* handle, void* address) {
  const Place place = place_of(address);
  if (place.where != Where::device) return give(Status::invalid_value);
  *handle = {static_cast<std::uint64_t>(getpid()),
             reinterpret_cast<std::uintptr_t>(address),
             place.bytes,
             static_cast<std::uint64_t>(place.device),
             {}};
  return 0;
}
PLIMSOLL_DEVICE_API int NAME(IpcOpenMemHandle)(void** address, IpcHandle handle, unsigned) {
  if (handle.process != static_cast<std::uint64_t>(getpid()))
    return give(map_foreign(address, handle.bytes, static_cast<int>(handle.device)));
  *address = reinterpret_cast<void*>(handle.address);
  return give(place_of(*address).where == Where::device ? Status::ok : Status::invalid_value);
}
PLIMSOLL_DEVICE_API int NAME(IpcCloseMemHandle)(void*) { return 0; }

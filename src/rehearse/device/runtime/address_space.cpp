// Address space and physical memory apart: the CUDA driver's functions, and HIP's under its own prefix.
#include <cstring>

#include "rehearse/device/core/interface.hpp"

#if defined(PLIMSOLL_HIP_MAJOR)
#define VMM(function) hip##function
#else
#define VMM(function) cu##function
#endif

using namespace plimsoll::device;

namespace {

using Address = std::uintptr_t;  // CUdeviceptr, hipDeviceptr_t

int answer(Status status) { return static_cast<int>(status); }

struct Location {
  int type;  ///< 1: a device; 2, 3, 4: the host
  int id;
};
struct AllocationProperties {
  int type, handle_types;
  Location location;
  void* win32;
  struct {
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
static_assert(sizeof(AllocationProperties) == 32);

}  // namespace

PLIMSOLL_DEVICE_API int VMM(MemGetAllocationGranularity)(std::size_t* bytes, const AllocationProperties*, int) {
  *bytes = kPage;
  return 0;
}
PLIMSOLL_DEVICE_API int VMM(MemAddressReserve)(Address* address, std::size_t bytes, std::size_t alignment, Address, unsigned long long) {
  return answer(reserve_addresses(address, bytes, alignment));
}
PLIMSOLL_DEVICE_API int VMM(MemAddressFree)(Address address, std::size_t bytes) { return answer(free_addresses(address, bytes)); }
PLIMSOLL_DEVICE_API int VMM(MemCreate)(std::uint64_t* handle, std::size_t bytes, const AllocationProperties* properties,
                                       unsigned long long) {
  constexpr int kDevice = 1;
  if (properties == nullptr) return answer(Status::invalid_value);
  return answer(create_physical(handle, bytes, properties->location.type == kDevice ? properties->location.id : -1));
}
PLIMSOLL_DEVICE_API int VMM(MemRelease)(std::uint64_t handle) { return answer(release_physical(handle)); }
PLIMSOLL_DEVICE_API int VMM(MemMap)(Address address, std::size_t bytes, std::size_t offset, std::uint64_t handle, unsigned long long) {
  return answer(map_physical(address, bytes, offset, handle));
}
PLIMSOLL_DEVICE_API int VMM(MemUnmap)(Address address, std::size_t bytes) { return answer(unmap(address, bytes)); }
PLIMSOLL_DEVICE_API int VMM(MemSetAccess)(Address, std::size_t, const void*, std::size_t) { return 0; }
PLIMSOLL_DEVICE_API int VMM(MemGetAccess)(unsigned long long* flags, const Location*, Address) {
  *flags = 3;  // read and write
  return 0;
}
PLIMSOLL_DEVICE_API int VMM(MemRetainAllocationHandle)(std::uint64_t* handle, void* address) {
  return answer(retain_physical(handle, reinterpret_cast<Address>(address)));
}
PLIMSOLL_DEVICE_API int VMM(MemGetAllocationPropertiesFromHandle)(AllocationProperties* properties, std::uint64_t handle) {
  std::size_t bytes = 0;
  int device = 0;
  const Status status = physical_of(handle, &bytes, &device);
  std::memset(properties, 0, sizeof *properties);
  properties->type = 1;  // pinned, the only kind
  properties->location = device >= 0 ? Location{1, device} : Location{2, 0};
  return answer(status);
}
// There is no other process to share with.
PLIMSOLL_DEVICE_API int VMM(MemExportToShareableHandle)(void*, std::uint64_t, int, unsigned long long) {
  return answer(Status::not_supported);
}
PLIMSOLL_DEVICE_API int VMM(MemImportFromShareableHandle)(std::uint64_t*, void*, int) { return answer(Status::not_supported); }

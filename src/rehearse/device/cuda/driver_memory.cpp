// The CUDA driver's memory, address space and physical memory apart included.
#include <cstring>

#include "rehearse/device/core/interface.hpp"
#include "rehearse/device/core/settings.hpp"

using namespace plimsoll::device;

namespace {

using Address = std::uintptr_t;  // CUdeviceptr

void* pointer(Address address) { return reinterpret_cast<void*>(address); }
int answer(Status status) { return static_cast<int>(status); }

struct Copy2d {
  std::size_t from_x, from_y;
  int from_type;
  const void* from_host;
  Address from_device;
  Handle from_array;
  std::size_t from_pitch;
  std::size_t to_x, to_y;
  int to_type;
  void* to_host;
  Address to_device;
  Handle to_array;
  std::size_t to_pitch;
  std::size_t width, height;
};
static_assert(sizeof(Copy2d) == 128);

int copy_on(void* to, const void* from, std::size_t bytes, Handle stream, bool synchronous) {
  return answer(with_stream(stream, [&](Stream& on) { return copy(to, from, bytes, on, synchronous); }));
}

int fill_on(Address to, std::uint32_t value, std::size_t unit, std::size_t count, Handle stream) {
  return answer(with_stream(stream, [&](Stream& on) { return fill(pointer(to), value, unit, count, on); }));
}

int copy_rectangle(const Copy2d& c, Handle stream, bool synchronous) {
  constexpr int kHost = 1, kArray = 3;
  if (c.from_type == kArray || c.to_type == kArray) return answer(Status::not_supported);
  const char* from = c.from_type == kHost ? static_cast<const char*>(c.from_host) : static_cast<const char*>(pointer(c.from_device));
  char* to = c.to_type == kHost ? static_cast<char*>(c.to_host) : static_cast<char*>(pointer(c.to_device));
  const std::size_t from_pitch = c.from_pitch == 0 ? c.width : c.from_pitch, to_pitch = c.to_pitch == 0 ? c.width : c.to_pitch;
  return answer(with_stream(stream, [&](Stream& on) {
    return copy_rows(to + c.to_y * to_pitch + c.to_x, to_pitch, from + c.from_y * from_pitch + c.from_x, from_pitch, c.width, c.height, on,
                     synchronous);
  }));
}

/// One attribute of an address; false for those without an answer.
bool pointer_attribute(void* to, int attribute, Address address) {
  const Place place = place_of(pointer(address));
  const bool on_device = place.where == Where::device;
  const auto put = [&](auto value) { std::memcpy(to, &value, sizeof value); };
  switch (attribute) {
    case 2:
      put(on_device || place.where == Where::managed ? 2u : 1u);
      return place.where != Where::host;  // memory type
    case 3:
    case 4:
      put(address);
      return true;  // device and host pointer
    case 6:
    case 10:
    case 15:
      put(0);
      return true;  // synchronous, IPC, RDMA
    case 7:
      put(static_cast<unsigned long long>(place.start));
      return true;  // id of the buffer
    case 8:
      put(place.where == Where::managed ? 1 : 0);
      return true;
    case 9:
      put(place.device);
      return place.where != Where::host;
    case 11:
    case 19:
      put(place.start);
      return place.where != Where::host;
    case 12:
    case 18:
      put(place.bytes);
      return place.where != Where::host;
    case 13:
      put(place.where != Where::host ? 1 : 0);
      return true;
    case 14:
      put(std::uint64_t{0});
      return true;
    case 16:
      put(3);
      return true;  // read and write
    case 17:
      put(static_cast<Handle>(nullptr));
      return true;
    default:
      return false;
  }
}

}  // namespace

PLIMSOLL_DEVICE_API int cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  std::uint64_t left = 0, total = 0;
  memory_info(&left, &total);
  *free_bytes = left;
  *total_bytes = total;
  return 0;
}
PLIMSOLL_DEVICE_API int cuMemAlloc_v2(void** address, std::size_t bytes) {
  return answer(bytes == 0 ? Status::invalid_value : allocate(address, bytes));
}
PLIMSOLL_DEVICE_API int cuMemFree_v2(Address address) { return answer(release(pointer(address))); }
PLIMSOLL_DEVICE_API int cuMemAllocManaged(void** address, std::size_t bytes, unsigned) {
  return answer(allocate_host(address, bytes, Where::managed));
}
PLIMSOLL_DEVICE_API int cuMemAllocHost_v2(void** address, std::size_t bytes) { return answer(allocate_host(address, bytes)); }
PLIMSOLL_DEVICE_API int cuMemHostAlloc(void** address, std::size_t bytes, unsigned) { return answer(allocate_host(address, bytes)); }
PLIMSOLL_DEVICE_API int cuMemFreeHost(void* address) { return answer(release_host(address)); }
PLIMSOLL_DEVICE_API int cuMemHostRegister_v2(void* address, std::size_t bytes, unsigned) { return answer(register_host(address, bytes)); }
PLIMSOLL_DEVICE_API int cuMemHostUnregister(void* address) { return answer(unregister_host(address)); }
PLIMSOLL_DEVICE_API int cuMemHostGetDevicePointer_v2(void** device, void* host, unsigned) {
  *device = host;
  return answer(place_of(host).where == Where::host ? Status::invalid_value : Status::ok);
}
PLIMSOLL_DEVICE_API int cuMemAllocAsync(void** address, std::size_t bytes, Handle stream) {
  return answer(with_stream(stream, [&](Stream& on) { return allocate(address, bytes, &on); }));
}
PLIMSOLL_DEVICE_API int cuMemFreeAsync(Address address, Handle stream) {
  return answer(with_stream(stream, [&](Stream& on) { return release(pointer(address), &on); }));
}
PLIMSOLL_DEVICE_API int cuMemGetAddressRange_v2(Address* start, std::size_t* bytes, Address address) {
  const Place place = place_of(pointer(address));
  if (start != nullptr) *start = place.start;
  if (bytes != nullptr) *bytes = place.bytes;
  return answer(place.where == Where::host ? Status::not_found : Status::ok);
}
PLIMSOLL_DEVICE_API int cuPointerGetAttribute(void* value, int attribute, Address address) {
  return answer(pointer_attribute(value, attribute, address) ? Status::ok : Status::invalid_value);
}
PLIMSOLL_DEVICE_API int cuPointerGetAttributes(unsigned count, int* attributes, void** values, Address address) {
  for (unsigned i = 0; i < count; ++i)
    if (!pointer_attribute(values[i], attributes[i], address)) std::memset(values[i], 0, 4);
  return 0;
}

PLIMSOLL_DEVICE_API int cuMemcpy(Address to, Address from, std::size_t bytes) {
  return copy_on(pointer(to), pointer(from), bytes, nullptr, true);
}
PLIMSOLL_DEVICE_API int cuMemcpyAsync(Address to, Address from, std::size_t bytes, Handle stream) {
  return copy_on(pointer(to), pointer(from), bytes, stream, false);
}
PLIMSOLL_DEVICE_API int cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  return copy_on(pointer(to), from, bytes, nullptr, true);
}
PLIMSOLL_DEVICE_API int cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, Handle stream) {
  return copy_on(pointer(to), from, bytes, stream, false);
}
PLIMSOLL_DEVICE_API int cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  return copy_on(to, pointer(from), bytes, nullptr, true);
}
PLIMSOLL_DEVICE_API int cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, Handle stream) {
  return copy_on(to, pointer(from), bytes, stream, false);
}
PLIMSOLL_DEVICE_API int cuMemcpyDtoD_v2(Address to, Address from, std::size_t bytes) { return cuMemcpy(to, from, bytes); }
PLIMSOLL_DEVICE_API int cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, Handle stream) {
  return cuMemcpyAsync(to, from, bytes, stream);
}
PLIMSOLL_DEVICE_API int cuMemcpyPeer(Address to, Handle, Address from, Handle, std::size_t bytes) { return cuMemcpy(to, from, bytes); }
PLIMSOLL_DEVICE_API int cuMemcpyPeerAsync(Address to, Handle, Address from, Handle, std::size_t bytes, Handle stream) {
  return cuMemcpyAsync(to, from, bytes, stream);
}
PLIMSOLL_DEVICE_API int cuMemcpy2D_v2(const Copy2d* c) { return copy_rectangle(*c, nullptr, true); }
PLIMSOLL_DEVICE_API int cuMemcpy2DUnaligned_v2(const Copy2d* c) { return copy_rectangle(*c, nullptr, true); }
PLIMSOLL_DEVICE_API int cuMemcpy2DAsync_v2(const Copy2d* c, Handle stream) { return copy_rectangle(*c, stream, false); }
PLIMSOLL_DEVICE_API int cuMemsetD8_v2(Address to, unsigned char value, std::size_t n) { return fill_on(to, value, 1, n, nullptr); }
PLIMSOLL_DEVICE_API int cuMemsetD16_v2(Address to, unsigned short value, std::size_t n) { return fill_on(to, value, 2, n, nullptr); }
PLIMSOLL_DEVICE_API int cuMemsetD32_v2(Address to, unsigned value, std::size_t n) { return fill_on(to, value, 4, n, nullptr); }
PLIMSOLL_DEVICE_API int cuMemsetD8Async(Address to, unsigned char value, std::size_t n, Handle stream) {
  return fill_on(to, value, 1, n, stream);
}
PLIMSOLL_DEVICE_API int cuMemsetD16Async(Address to, unsigned short value, std::size_t n, Handle stream) {
  return fill_on(to, value, 2, n, stream);
}
PLIMSOLL_DEVICE_API int cuMemsetD32Async(Address to, unsigned value, std::size_t n, Handle stream) {
  return fill_on(to, value, 4, n, stream);
}

// What HIP's runtime has beside the functions it shares with CUDA's: page-locked memory under its own names, copies with their direction in
// the name, extended launches, contexts.
#include <cstdio>
#include <cstring>

#include "rehearse/device/core/settings.hpp"
#include "rehearse/device/core/streams.hpp"
#include "rehearse/device/runtime/vendor.hpp"

using namespace plimsoll::device;

namespace {

int copy_on(void* to, const void* from, std::size_t bytes, Handle stream, bool synchronous) {
  return give(with_stream(stream, [&](Stream& on) { return copy(to, from, bytes, on, synchronous); }));
}

int fill_on(void* to, std::uint32_t value, std::size_t unit, std::size_t count, Handle stream) {
  return give(with_stream(stream, [&](Stream& on) { return fill(to, value, unit, count, on); }));
}

bool is_device(int device) { return device >= 0 && device < settings().devices; }
int checked(int device) { return give(is_device(device) ? Status::ok : Status::invalid_device); }

/// A launch with events around it.
int launch_between(const Launch& what, Handle stream, Handle start, Handle stop) {
  if (start != nullptr)
    if (const Status status = record_event(start, stream); status != Status::ok) return give(status);
  const Status status = with_stream(stream, [&](Stream& on) { return launch(what, limits_of_arch(), on); });
  return give(status == Status::ok && stop != nullptr ? record_event(stop, stream) : status);
}

}  // namespace

PLIMSOLL_DEVICE_API int hipInit(unsigned) { return give(settings().devices > 0 ? Status::ok : Status::no_device); }
PLIMSOLL_DEVICE_API int hipDeviceGet(int* device, int number) {
  *device = number;
  return checked(number);
}
PLIMSOLL_DEVICE_API int hipDeviceGetName(char* text, int length, int device) {
  if (length > 0) std::snprintf(text, static_cast<std::size_t>(length), "%s", settings().name.c_str());
  return checked(device);
}
PLIMSOLL_DEVICE_API int hipDeviceGetUuid(Uuid* uuid, int device) {
  *uuid = uuid_of(device);
  return checked(device);
}
PLIMSOLL_DEVICE_API int hipDeviceTotalMem(std::size_t* bytes, int device) {
  const auto held = lock();
  *bytes = machine().memory_bytes;
  return checked(device);
}
PLIMSOLL_DEVICE_API int hipDeviceComputeCapability(int* major, int* minor, int device) {
  *major = *minor = 0;
  std::sscanf(settings().arch.c_str(), "gfx%1d%1d", major, minor);
  return checked(device);
}
PLIMSOLL_DEVICE_API int hipDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return checked(device);
}
PLIMSOLL_DEVICE_API int hipCtxGetDevice(int* device) {
  *device = thread_state().device;
  return 0;
}
PLIMSOLL_DEVICE_API int hipGetStreamDeviceId(Handle stream) {
  int device = -1;
  stream_field(stream, &Stream::device, &device);
  return device;
}
PLIMSOLL_DEVICE_API int hipExtGetLastError() {
  const auto last = thread_state().last_error;
  thread_state().last_error = Status::ok;
  return static_cast<int>(last);
}
PLIMSOLL_DEVICE_API int hipDrvGetErrorString(int error, const char** text) {
  *text = text_of(static_cast<Status>(error));
  return *text == nullptr ? static_cast<int>(Status::invalid_value) : 0;
}
/// Ways between two devices: through the fabric, one hop.
PLIMSOLL_DEVICE_API int hipExtGetLinkTypeAndHopCount(int, int to, std::uint32_t* type, std::uint32_t* hops) {
  constexpr std::uint32_t kXgmi = 4;
  *type = kXgmi;
  *hops = 1;
  return checked(to);
}

PLIMSOLL_DEVICE_API int hipExtMallocWithFlags(void** address, std::size_t bytes, unsigned) { return give(allocate(address, bytes)); }
PLIMSOLL_DEVICE_API int hipHostMalloc(void** address, std::size_t bytes, unsigned) { return give(allocate_host(address, bytes)); }
PLIMSOLL_DEVICE_API int hipExtHostAlloc(void** address, std::size_t bytes, unsigned) { return give(allocate_host(address, bytes)); }
PLIMSOLL_DEVICE_API int hipMemAllocHost(void** address, std::size_t bytes) { return give(allocate_host(address, bytes)); }
PLIMSOLL_DEVICE_API int hipHostFree(void* address) { return give(release_host(address)); }
PLIMSOLL_DEVICE_API int hipMemPtrGetInfo(void* address, std::size_t* bytes) {
  const Place place = place_of(address);
  *bytes = place.bytes;
  return give(place.where == Where::host ? Status::invalid_value : Status::ok);
}
PLIMSOLL_DEVICE_API int hipMemGetAddressRange(void** start, std::size_t* bytes, void* address) {
  const Place place = place_of(address);
  *start = reinterpret_cast<void*>(place.start);
  *bytes = place.bytes;
  return give(place.where == Where::host ? Status::not_found : Status::ok);
}

PLIMSOLL_DEVICE_API int hipMemcpyWithStream(void* to, const void* from, std::size_t bytes, int, Handle stream) {
  return copy_on(to, from, bytes, stream, true);
}
PLIMSOLL_DEVICE_API int hipMemcpyHtoD(void* to, const void* from, std::size_t bytes) { return copy_on(to, from, bytes, nullptr, true); }
PLIMSOLL_DEVICE_API int hipMemcpyDtoH(void* to, const void* from, std::size_t bytes) { return copy_on(to, from, bytes, nullptr, true); }
PLIMSOLL_DEVICE_API int hipMemcpyDtoD(void* to, const void* from, std::size_t bytes) { return copy_on(to, from, bytes, nullptr, true); }
PLIMSOLL_DEVICE_API int hipMemcpyHtoDAsync(void* to, const void* from, std::size_t bytes, Handle stream) {
  return copy_on(to, from, bytes, stream, false);
}
PLIMSOLL_DEVICE_API int hipMemcpyDtoHAsync(void* to, const void* from, std::size_t bytes, Handle stream) {
  return copy_on(to, from, bytes, stream, false);
}
PLIMSOLL_DEVICE_API int hipMemcpyDtoDAsync(void* to, const void* from, std::size_t bytes, Handle stream) {
  return copy_on(to, from, bytes, stream, false);
}
PLIMSOLL_DEVICE_API int hipMemsetD8(void* to, unsigned char value, std::size_t n) { return fill_on(to, value, 1, n, nullptr); }
PLIMSOLL_DEVICE_API int hipMemsetD16(void* to, unsigned short value, std::size_t n) { return fill_on(to, value, 2, n, nullptr); }
PLIMSOLL_DEVICE_API int hipMemsetD32(void* to, int value, std::size_t n) {
  return fill_on(to, static_cast<std::uint32_t>(value), 4, n, nullptr);
}
PLIMSOLL_DEVICE_API int hipMemsetD8Async(void* to, unsigned char value, std::size_t n, Handle stream) {
  return fill_on(to, value, 1, n, stream);
}
PLIMSOLL_DEVICE_API int hipMemsetD16Async(void* to, unsigned short value, std::size_t n, Handle stream) {
  return fill_on(to, value, 2, n, stream);
}
PLIMSOLL_DEVICE_API int hipMemsetD32Async(void* to, int value, std::size_t n, Handle stream) {
  return fill_on(to, static_cast<std::uint32_t>(value), 4, n, stream);
}

PLIMSOLL_DEVICE_API int hipExtStreamCreateWithCUMask(Handle* stream, std::uint32_t, const std::uint32_t*) {
  return give(new_stream(stream, 0, 0));
}
PLIMSOLL_DEVICE_API int hipStreamWriteValue32(Handle stream, void* address, std::uint32_t value, unsigned) {
  return fill_on(address, value, 4, 1, stream);
}
PLIMSOLL_DEVICE_API int hipExtLaunchKernel(const void* function, Dim3 blocks, Dim3 threads, void**, std::size_t shared, Handle stream,
                                           Handle start, Handle stop, int) {
  return launch_between({function, grid(blocks), grid(threads), shared}, stream, start, stop);
}
PLIMSOLL_DEVICE_API const char* hipKernelNameRefByPtr(const void* function, Handle) { return kernel_name(function); }
PLIMSOLL_DEVICE_API const char* hipKernelNameRef(const void* function) { return kernel_name(function); }

// The CUDA driver's streams, events, graphs, modules and kernels.
#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "rehearse/device/core/modules.hpp"
#include "rehearse/device/core/properties.hpp"
#include "rehearse/device/core/settings.hpp"
#include "rehearse/device/core/streams.hpp"
#include "rehearse/device/runtime/launch_attributes.hpp"

using namespace plimsoll::device;

namespace {

int answer(Status status) { return static_cast<int>(status); }

struct LaunchConfiguration {
  unsigned grid[3], block[3];
  unsigned shared;
  Handle stream;
  LaunchAttribute* attributes;
  unsigned count;
};
static_assert(sizeof(LaunchConfiguration) == 56);

Launch launch_of(const LaunchConfiguration& c, const void* function) {
  Launch it{function, {c.grid[0], c.grid[1], c.grid[2]}, {c.block[0], c.block[1], c.block[2]}, c.shared};
  read_attributes(c.attributes, c.count, &it);
  return it;
}

int launch_on(const Launch& what, Handle stream) {
  return answer(with_stream(stream, [&](Stream& on) { return launch(what, limits_of_accelerator(), on); }));
}

int loaded(Handle* module, const void* image = nullptr) {
  *module = load_module(image);
  return 0;
}

/// The same of an image in a file (Inductor's launcher loads its kernels so).
int loaded_from(Handle* module, const char* path) {
  std::ifstream file(path == nullptr ? "" : path, std::ios::binary);
  const std::string image{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return loaded(module, image.size() < sizeof(Elf64_Ehdr) ? nullptr : image.data());
}

/// CUfunction_attribute; registers are not known without reading the image.
int function_attribute(int attribute) {
  switch (attribute) {
    case 0:
      return 1024;  // threads of a block
    case 4:
      return 64;  // registers
    case 5:
    case 6:
      return settings().major * 10 + settings().minor;
    case 8:
      return static_cast<int>(limits_of_accelerator().shared_per_block_optin);
    default:
      return 0;
  }
}

int set_function_attribute(int attribute, int value) {
  constexpr int kMostDynamicShared = 8;
  const bool too_much = attribute == kMostDynamicShared && value > static_cast<int>(limits_of_accelerator().shared_per_block_optin);
  return answer(too_much ? Status::invalid_value : Status::ok);
}

}  // namespace

PLIMSOLL_DEVICE_API int cuStreamCreate(Handle* stream, unsigned flags) { return answer(new_stream(stream, flags, 0)); }
PLIMSOLL_DEVICE_API int cuStreamCreateWithPriority(Handle* stream, unsigned flags, int priority) {
  return answer(new_stream(stream, flags, priority));
}
PLIMSOLL_DEVICE_API int cuStreamDestroy_v2(Handle stream) { return answer(destroy_stream(stream)); }
PLIMSOLL_DEVICE_API int cuStreamSynchronize(Handle stream) { return answer(synchronize_stream(stream)); }
PLIMSOLL_DEVICE_API int cuStreamQuery(Handle stream) { return answer(query_stream(stream)); }
PLIMSOLL_DEVICE_API int cuStreamWaitEvent(Handle stream, Handle event, unsigned) { return answer(wait_event(stream, event)); }
PLIMSOLL_DEVICE_API int cuStreamGetId(Handle stream, unsigned long long* id) { return answer(stream_field(stream, &Stream::id, id)); }
PLIMSOLL_DEVICE_API int cuStreamGetPriority(Handle stream, int* priority) {
  return answer(stream_field(stream, &Stream::priority, priority));
}
PLIMSOLL_DEVICE_API int cuStreamGetFlags(Handle stream, unsigned* flags) { return answer(stream_field(stream, &Stream::flags, flags)); }
PLIMSOLL_DEVICE_API int cuStreamGetDevice(Handle stream, int* device) { return answer(stream_field(stream, &Stream::device, device)); }
PLIMSOLL_DEVICE_API int cuDevicePrimaryCtxRetain(Handle* context, int device);
PLIMSOLL_DEVICE_API int cuStreamGetCtx(Handle stream, Handle* context) {
  int device = 0;
  const Status status = stream_field(stream, &Stream::device, &device);
  return status == Status::ok ? cuDevicePrimaryCtxRetain(context, device) : answer(status);
}
PLIMSOLL_DEVICE_API int cuStreamWriteValue32_v2(Handle stream, std::uintptr_t address, std::uint32_t value, unsigned) {
  return answer(with_stream(stream, [&](Stream& on) { return fill(reinterpret_cast<void*>(address), value, 4, 1, on); }));
}
PLIMSOLL_DEVICE_API int cuStreamWaitValue32_v2(Handle stream, std::uintptr_t, std::uint32_t, unsigned) {
  return answer(stream_of(stream) != nullptr ? Status::ok : Status::invalid_handle);
}
PLIMSOLL_DEVICE_API int cuLaunchHostFunc(Handle stream, void (*function)(void*), void* argument) {
  return answer(run_on_host(stream, function, argument));
}
PLIMSOLL_DEVICE_API int cuStreamBeginCapture_v2(Handle stream, int) { return answer(begin_capture(stream)); }
PLIMSOLL_DEVICE_API int cuStreamEndCapture(Handle stream, Handle* graph) { return answer(end_capture(stream, graph)); }
PLIMSOLL_DEVICE_API int cuStreamIsCapturing(Handle stream, int* status) { return answer(capture_info(stream, status)); }
PLIMSOLL_DEVICE_API int cuStreamGetCaptureInfo_v2(Handle stream, int* status, std::uint64_t* id, Handle* graph, const Handle** dependencies,
                                                  std::size_t* count) {
  return answer(capture_info(stream, status, reinterpret_cast<unsigned long long*>(id), graph, dependencies, nullptr, count));
}
PLIMSOLL_DEVICE_API int cuStreamGetCaptureInfo_v3(Handle stream, int* status, std::uint64_t* id, Handle* graph, const Handle** dependencies,
                                                  const void** edges, std::size_t* count) {
  return answer(capture_info(stream, status, reinterpret_cast<unsigned long long*>(id), graph, dependencies, edges, count));
}
PLIMSOLL_DEVICE_API int cuGraphInstantiateWithFlags(Handle* executable, Handle graph, unsigned long long) {
  return answer(copy_graph(executable, graph));
}
PLIMSOLL_DEVICE_API int cuGraphLaunch(Handle executable, Handle stream) { return answer(launch_graph(executable, stream)); }
PLIMSOLL_DEVICE_API int cuGraphDestroy(Handle graph) { return answer(destroy_graph(graph)); }
PLIMSOLL_DEVICE_API int cuGraphExecDestroy(Handle executable) { return answer(destroy_graph(executable)); }

PLIMSOLL_DEVICE_API int cuEventCreate(Handle* event, unsigned flags) { return answer(new_event(event, flags)); }
PLIMSOLL_DEVICE_API int cuEventDestroy_v2(Handle event) { return answer(destroy_event(event)); }
PLIMSOLL_DEVICE_API int cuEventRecord(Handle event, Handle stream) { return answer(record_event(event, stream)); }
PLIMSOLL_DEVICE_API int cuEventRecordWithFlags(Handle event, Handle stream, unsigned) { return answer(record_event(event, stream)); }
PLIMSOLL_DEVICE_API int cuEventQuery(Handle event) { return answer(query_event(event)); }
PLIMSOLL_DEVICE_API int cuEventSynchronize(Handle event) { return answer(synchronize_event(event)); }
PLIMSOLL_DEVICE_API int cuEventElapsedTime(float* milliseconds, Handle from, Handle to) {
  return answer(elapsed_between(milliseconds, from, to));
}
PLIMSOLL_DEVICE_API int cuEventElapsedTime_v2(float* milliseconds, Handle from, Handle to) {
  return answer(elapsed_between(milliseconds, from, to));
}

PLIMSOLL_DEVICE_API int cuModuleLoad(Handle* module, const char* path) { return loaded_from(module, path); }
PLIMSOLL_DEVICE_API int cuModuleLoadData(Handle* module, const void* image) { return loaded(module, image); }
PLIMSOLL_DEVICE_API int cuModuleLoadDataEx(Handle* module, const void* image, unsigned, int*, void**) {
  return loaded(module, image);
}
PLIMSOLL_DEVICE_API int cuModuleLoadFatBinary(Handle* module, const void*) { return loaded(module); }
PLIMSOLL_DEVICE_API int cuModuleUnload(Handle) { return 0; }  // its kernels' names stay known
PLIMSOLL_DEVICE_API int cuModuleGetLoadingMode(int* mode) {
  *mode = 2;  // lazy
  return 0;
}
PLIMSOLL_DEVICE_API int cuModuleGetFunction(const void** function, Handle module, const char* name) {
  *function = kernel_of(static_cast<Module*>(module), name);
  return 0;
}
// Variables of an image that is not read.
PLIMSOLL_DEVICE_API int cuModuleGetGlobal_v2(void**, std::size_t*, Handle, const char*) { return answer(Status::not_found); }
PLIMSOLL_DEVICE_API int cuLibraryLoadData(Handle* library, const void* image, int*, void**, unsigned, int*, void**, unsigned) {
  return loaded(library, image);
}
PLIMSOLL_DEVICE_API int cuLibraryLoadFromFile(Handle* library, const char* path, int*, void**, unsigned, int*, void**, unsigned) {
  return loaded_from(library, path);
}
PLIMSOLL_DEVICE_API int cuLibraryUnload(Handle) { return 0; }
PLIMSOLL_DEVICE_API int cuLibraryGetKernel(const void** kernel, Handle library, const char* name) {
  return cuModuleGetFunction(kernel, library, name);
}
PLIMSOLL_DEVICE_API int cuLibraryGetModule(Handle* module, Handle library) {
  *module = library;
  return 0;
}
PLIMSOLL_DEVICE_API int cuLibraryGetGlobal(void**, std::size_t*, Handle, const char*) { return answer(Status::not_found); }
PLIMSOLL_DEVICE_API int cuKernelGetFunction(const void** function, const void* kernel) {
  *function = kernel;
  return 0;
}
PLIMSOLL_DEVICE_API int cuFuncGetName(const char** name, const void* function) {
  *name = kernel_name(function);
  return answer(*name == nullptr ? Status::invalid_value : Status::ok);
}
PLIMSOLL_DEVICE_API int cuKernelGetName(const char** name, const void* kernel) { return cuFuncGetName(name, kernel); }
PLIMSOLL_DEVICE_API int cuFuncGetAttribute(int* value, int attribute, const void*) {
  *value = function_attribute(attribute);
  return 0;
}
PLIMSOLL_DEVICE_API int cuKernelGetAttribute(int* value, int attribute, const void*, int) {
  *value = function_attribute(attribute);
  return 0;
}
PLIMSOLL_DEVICE_API int cuFuncSetAttribute(const void*, int attribute, int value) { return set_function_attribute(attribute, value); }
PLIMSOLL_DEVICE_API int cuKernelSetAttribute(int attribute, int value, const void*, int) {
  return set_function_attribute(attribute, value);
}
PLIMSOLL_DEVICE_API int cuFuncSetCacheConfig(const void*, int) { return 0; }
PLIMSOLL_DEVICE_API int cuFuncSetSharedMemConfig(const void*, int) { return 0; }
PLIMSOLL_DEVICE_API int cuFuncLoad(const void*) { return 0; }
PLIMSOLL_DEVICE_API int cuFuncIsLoaded(int* state, const void*) {
  *state = 1;
  return 0;
}

PLIMSOLL_DEVICE_API int cuLaunchKernel(const void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                       unsigned shared, Handle stream, void** arguments, void**) {
  return launch_on({function, {gx, gy, gz}, {bx, by, bz}, shared, 1, false, arguments}, stream);
}
PLIMSOLL_DEVICE_API int cuLaunchCooperativeKernel(const void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                                  unsigned bz, unsigned shared, Handle stream, void** arguments) {
  return launch_on({function, {gx, gy, gz}, {bx, by, bz}, shared, 1, true, arguments}, stream);
}
PLIMSOLL_DEVICE_API int cuLaunchKernelEx(const LaunchConfiguration* c, const void* function, void** arguments, void**) {
  Launch it = launch_of(*c, function);
  it.arguments = arguments;
  return launch_on(it, c->stream);
}

PLIMSOLL_DEVICE_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, std::size_t shared) {
  *blocks = occupancy(limits_of_accelerator(), threads, shared);
  return 0;
}
PLIMSOLL_DEVICE_API int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads, std::size_t shared,
                                                                             unsigned) {
  *blocks = occupancy(limits_of_accelerator(), threads, shared);
  return 0;
}
PLIMSOLL_DEVICE_API int cuOccupancyMaxActiveClusters(int* clusters, const void* function, const LaunchConfiguration* c) {
  const Launch it = launch_of(*c, function);
  const int blocks =
      occupancy(limits_of_accelerator(), static_cast<int>(c->block[0] * c->block[1] * c->block[2]), c->shared) * settings().processors;
  *clusters = blocks / static_cast<int>(it.cluster == 0 ? 1 : it.cluster);
  return 0;
}
PLIMSOLL_DEVICE_API int cuOccupancyMaxPotentialBlockSize(int* grid, int* block, const void*, std::size_t (*shared_of)(int),
                                                         std::size_t shared, int most) {
  *block = most > 0 && most < 1024 ? most : 1024;
  *grid = settings().processors * occupancy(limits_of_accelerator(), *block, shared_of != nullptr ? shared_of(*block) : shared);
  return 0;
}

// An image linked at run time; what it holds does not matter.
PLIMSOLL_DEVICE_API int cuLinkCreate_v2(unsigned, int*, void**, Handle* state) {
  *state = nullptr;
  return 0;
}
PLIMSOLL_DEVICE_API int cuLinkAddData_v2(Handle, int, void*, std::size_t, const char*, unsigned, int*, void**) { return 0; }
PLIMSOLL_DEVICE_API int cuLinkComplete(Handle, void** image, std::size_t* bytes) {
  static char nothing[8];
  *image = nothing;
  *bytes = sizeof nothing;
  return 0;
}
PLIMSOLL_DEVICE_API int cuLinkDestroy(Handle) { return 0; }
PLIMSOLL_DEVICE_API int cuTensorMapEncodeTiled(void* map, int, unsigned, void*, const std::uint64_t*, const std::uint64_t*, const unsigned*,
                                               const unsigned*, int, int, int, int) {
  std::memset(map, 0, 128);
  return 0;
}

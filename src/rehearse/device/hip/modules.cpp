// HIP's modules: kernels loaded at run time and launched by handle.
#include "rehearse/device/core/modules.hpp"

#include "rehearse/device/core/settings.hpp"
#include "rehearse/device/core/streams.hpp"
#include "rehearse/device/runtime/launch_attributes.hpp"
#include "rehearse/device/runtime/vendor.hpp"

using namespace plimsoll::device;

namespace {

int loaded(Handle* module) {
  *module = load_module();
  return 0;
}

int launch_on(const Launch& what, Handle stream) {
  return give(with_stream(stream, [&](Stream& on) { return launch(what, limits_of_arch(), on); }));
}

struct LaunchConfiguration {
  unsigned grid[3], block[3], shared;
  Handle stream;
  LaunchAttribute* attributes;
  unsigned count;
};

}  // namespace

PLIMSOLL_DEVICE_API int hipModuleLoad(Handle* module, const char*) { return loaded(module); }
PLIMSOLL_DEVICE_API int hipModuleLoadData(Handle* module, const void*) { return loaded(module); }
PLIMSOLL_DEVICE_API int hipModuleLoadDataEx(Handle* module, const void*, unsigned, int*, void**) { return loaded(module); }
PLIMSOLL_DEVICE_API int hipModuleLoadFatBinary(Handle* module, const void*) { return loaded(module); }
PLIMSOLL_DEVICE_API int hipModuleUnload(Handle) { return 0; }  // its kernels' names stay known
PLIMSOLL_DEVICE_API int hipModuleGetFunction(const void** function, Handle module, const char* name) {
  *function = kernel_of(static_cast<Module*>(module), name);
  return 0;
}
// Variables of an image that is not read.
PLIMSOLL_DEVICE_API int hipModuleGetGlobal(void**, std::size_t*, Handle, const char*) { return give(Status::not_found); }

PLIMSOLL_DEVICE_API int hipModuleLaunchKernel(const void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                              unsigned bz, unsigned shared, Handle stream, void**, void**) {
  return launch_on({function, {gx, gy, gz}, {bx, by, bz}, shared}, stream);
}
PLIMSOLL_DEVICE_API int hipModuleLaunchCooperativeKernel(const void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                                         unsigned by, unsigned bz, unsigned shared, Handle stream, void**) {
  return launch_on({function, {gx, gy, gz}, {bx, by, bz}, shared, 1, true}, stream);
}
/// The grid is given in threads here.
PLIMSOLL_DEVICE_API int hipExtModuleLaunchKernel(const void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                                 unsigned bz, std::size_t shared, Handle stream, void**, void**, Handle start, Handle stop,
                                                 unsigned) {
  if (bx == 0 || by == 0 || bz == 0) return give(Status::invalid_configuration);
  if (start != nullptr) record_event(start, stream);
  const int error = launch_on({function, {(gx + bx - 1) / bx, (gy + by - 1) / by, (gz + bz - 1) / bz}, {bx, by, bz}, shared}, stream);
  if (stop != nullptr) record_event(stop, stream);
  return error;
}
PLIMSOLL_DEVICE_API int hipDrvLaunchKernelEx(const LaunchConfiguration* c, const void* function, void**, void**) {
  Launch it{function, {c->grid[0], c->grid[1], c->grid[2]}, {c->block[0], c->block[1], c->block[2]}, c->shared};
  read_attributes(c->attributes, c->count, &it);
  return launch_on(it, c->stream);
}

/// hipFunction_attribute
PLIMSOLL_DEVICE_API int hipFuncGetAttribute(int* value, int attribute, const void*) {
  switch (attribute) {
    case 0:
      *value = 1024;
      break;  // threads of a block
    case 4:
      *value = 64;
      break;  // registers: not known without reading the image
    case 8:
      *value = static_cast<int>(limits_of_arch().shared_per_block_optin);
      break;
    default:
      *value = 0;
  }
  return 0;
}
PLIMSOLL_DEVICE_API int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, std::size_t shared) {
  *blocks = occupancy(limits_of_arch(), threads, shared);
  return 0;
}
PLIMSOLL_DEVICE_API int hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                                    std::size_t shared, unsigned) {
  return hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
PLIMSOLL_DEVICE_API int hipOccupancyMaxPotentialBlockSize(int* blocks, int* threads, const void*, std::size_t shared, int most) {
  *threads = most > 0 && most < 1024 ? most : 1024;
  *blocks = settings().processors * occupancy(limits_of_arch(), *threads, shared);
  return 0;
}
PLIMSOLL_DEVICE_API int hipModuleOccupancyMaxPotentialBlockSize(int* blocks, int* threads, const void* function, std::size_t shared,
                                                                int most) {
  return hipOccupancyMaxPotentialBlockSize(blocks, threads, function, shared, most);
}

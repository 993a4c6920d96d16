/// The work that programs give a device: kernels, matrix products, calls of other libraries. It is recorded and not done.
#pragma once

#include <cstdint>
#include <vector>

#include "arguments.hpp"
#include "machine.hpp"
#include "properties.hpp"

namespace plimsoll::device {

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

/// The function at a host address (or behind a handle) is the kernel of that name; `name` is copied at its first launch.
PLIMSOLL_DEVICE_CORE void register_kernel(const void* function, const char* name);
/// The same of a kernel whose image says which parameters it has; else its name does.
PLIMSOLL_DEVICE_CORE void register_kernel(const void* function, const char* name, const std::vector<KeptArgument>& kept);
/// Null when it was never registered.
PLIMSOLL_DEVICE_CORE const char* kernel_name(const void* function);

struct Launch {
  const void* function;
  Grid grid, block;
  std::uint64_t shared_bytes = 0;
  std::uint32_t cluster = 1;
  bool cooperative = false;
  const void* const* arguments = nullptr;  ///< addresses of its arguments, one for each parameter; null: given another way
};
PLIMSOLL_DEVICE_CORE Status launch(const Launch& launch, const Limits& limits, Stream& stream);
PLIMSOLL_DEVICE_CORE void host_function(Stream& stream);

/// `gemm.header`, `stream` and `api` are filled in.
PLIMSOLL_DEVICE_CORE void gemm(record::Gemm gemm, const char* api, Stream& stream);
PLIMSOLL_DEVICE_CORE void library_call(const char* name, Stream& stream, const std::int64_t* numbers, std::uint32_t count,
                                       record::Type type, std::uint64_t workspace_bytes);

/// An exported function without behaviour was called for the first time.
PLIMSOLL_DEVICE_CORE void unmodelled(const char* name, const char* library);

/// Blocks of a kernel that fit on one SM or CU by threads, shared memory and registers (64 of them a thread: no kernel's own is known).
PLIMSOLL_DEVICE_CORE int occupancy(const Limits& limits, int block_threads, std::uint64_t dynamic_shared_bytes);

}  // namespace plimsoll::device

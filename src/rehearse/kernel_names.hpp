// What a kernel does, read off its name and its grid: PyTorch's kernels name their element types and say by their grid how many elements
// they handle; a kernel whose traffic neither tells is counted by its threads and named in the report.
#pragma once

#include <cstdint>
#include <string>

#include "plimsoll/program.hpp"

namespace plimsoll::rehearse {

struct Launch {
  std::uint64_t blocks[3] = {1, 1, 1};   ///< grid
  std::uint64_t threads[3] = {1, 1, 1};  ///< of a block
};

struct NamedKernel {
  Kernel kernel;
  bool bytes_known = false;  ///< else: sixteen bytes of each thread
};

/// "at::native::silu_kernel" as a person says it: demangled, without template arguments, parameters and namespaces that all share.
std::string short_name(const std::string& mangled);

/// `per_thread`: elements that a thread of PyTorch's vectorised elementwise kernels handles (4 before PyTorch 2.7, 8 since).
NamedKernel classify_kernel(const std::string& mangled, const Launch& launch, int per_thread);

}  // namespace plimsoll::rehearse

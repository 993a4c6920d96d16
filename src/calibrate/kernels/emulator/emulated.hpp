// The table's kernels on emulated processors: the source of the code objects, compiled for the CPU.
#pragma once

#include <string_view>

#include "calibrate/kernels/emulator/emulator.hpp"
#include "calibrate/kernels/kernel_table.hpp"

namespace plimsoll::calibrate::emulator {

/// A launch of one kernel.
struct EmulatedRow {
  const char* name;
  /// The launch with those arguments, as hipModuleLaunchKernel takes them; they are copied.
  Job (*job)(int blocks, void** arguments);
  /// Bytes of each argument, in order, ended by 0.
  const std::size_t* argument_sizes;
};

/// The kernel on that processor or nullptr.
const EmulatedRow* emulated_kernel(Target target, std::string_view name);

}  // namespace plimsoll::calibrate::emulator

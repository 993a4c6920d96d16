/// Kernels of a module or library loaded at run time: a kernel is there as soon as it is asked for by name.
#pragma once

#include "export.hpp"

namespace plimsoll::device {

struct Module;

/// Of an image in memory only the parameters of its kernels are read.
PLIMSOLL_DEVICE_CORE Module* load_module(const void* image = nullptr);
/// What launches take for the kernel of that name: the same each time.
PLIMSOLL_DEVICE_CORE const void* kernel_of(Module* module, const char* name);

}  // namespace plimsoll::device

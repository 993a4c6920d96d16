/// Whose runtime is being built. HIP's functions are CUDA's under other names, so the same source gives both: NAME(Malloc) is cudaMalloc,
/// or hipMalloc when PLIMSOLL_HIP_MAJOR is defined. The linker's map keeps in each library only the names that the vendor's has.
#pragma once

#include "rehearse/device/core/interface.hpp"
#include "rehearse/device/core/properties.hpp"

#if defined(PLIMSOLL_HIP_MAJOR)
#define PLIMSOLL_HIP 1
#define PREFIX "hip"
#define NAME(function) hip##function
#define INTERNAL(function) __hip##function
#else
#define PLIMSOLL_HIP 0
#define PREFIX "cuda"
#define NAME(function) cuda##function
#define INTERNAL(function) __cuda##function
#endif

namespace plimsoll::device {

/// Of the accelerator as this vendor describes it.
inline const Limits& own_limits() { return PLIMSOLL_HIP ? limits_of_arch() : limits_of_accelerator(); }

}  // namespace plimsoll::device

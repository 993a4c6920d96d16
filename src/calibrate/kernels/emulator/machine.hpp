// The emulated side of device/target.hpp: one translation unit per emulated processor defines PLIMSOLL_EMULATE to its name and
// PLIMSOLL_GFX or PLIMSOLL_SM to its number before including the kernels.
#pragma once

#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "calibrate/kernels/elements.hpp"
#include "calibrate/kernels/emulator/emulator.hpp"

#define PLIMSOLL_DEVICE plimsoll::calibrate::emulated::PLIMSOLL_EMULATE
#define PLIMSOLL_FUNCTION static inline
#define PLIMSOLL_KERNEL(name) inline void name
#define PLIMSOLL_KERNEL_OF_TWO(name) inline void name
#define PLIMSOLL_SHARED_ARRAY(type, name, count) \
  type* const name = static_cast<type*>(::plimsoll::calibrate::emulator::shared_memory({__FILE__, __LINE__}, sizeof(type) * (count)))
#define PLIMSOLL_LARGE_SHARED_ARRAY(type, name, count) \
  type* const name = static_cast<type*>(::plimsoll::calibrate::emulator::given_shared_memory({__FILE__, __LINE__}, sizeof(type) * (count)))
#if defined(PLIMSOLL_GFX)
#define PLIMSOLL_AMD 1
#else
#define PLIMSOLL_NVIDIA 1
#endif

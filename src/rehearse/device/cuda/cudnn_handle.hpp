/// cuDNN's handle and statuses.
#pragma once

#include "rehearse/device/core/interface.hpp"

namespace plimsoll::device::cuda {

inline constexpr int kDnnSuccess = 0, kDnnBadParameter = 2000, kDnnNotSupported = 3000;

struct DnnContext {
  Handle stream = nullptr;
};
inline DnnContext& dnn(Handle handle) { return *static_cast<DnnContext*>(handle); }

}  // namespace plimsoll::device::cuda

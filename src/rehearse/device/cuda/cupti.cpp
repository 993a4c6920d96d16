// CUPTI: there is nothing to profile. Every function answers "not initialized", as on a machine whose driver does not let itself be traced, and
// profilers go on without the device's side.
#include "rehearse/device/core/interface.hpp"

PLIMSOLL_DEVICE_API int cuptiGetResultString(int, const char** text) {
  *text = "CUPTI_ERROR_NOT_INITIALIZED";
  return 0;
}
PLIMSOLL_DEVICE_API int cuptiGetErrorMessage(int, const char** text) {
  *text = "there is no device to profile";
  return 0;
}
PLIMSOLL_DEVICE_API int cuptiGetVersion(unsigned* version) {
  *version = 0;
  return 0;
}
PLIMSOLL_DEVICE_API int cuptiGetTimestamp(std::uint64_t* nanoseconds) {
  *nanoseconds = plimsoll::device::now_ns();
  return 0;
}

// ROCm's management library: the machine's devices and their memory. What is not here answers "not supported".
#include <cstdio>
#include <cstring>

#include "rehearse/device/core/interface.hpp"
#include "rehearse/device/core/settings.hpp"

using namespace plimsoll::device;

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 1, kInsufficientSize = 10;
constexpr int kVram = 0;

bool is_device(std::uint32_t device) { return device < static_cast<std::uint32_t>(settings().devices); }

}  // namespace

PLIMSOLL_DEVICE_API int rsmi_init(std::uint64_t) { return kSuccess; }
PLIMSOLL_DEVICE_API int rsmi_shut_down() { return kSuccess; }
PLIMSOLL_DEVICE_API int rsmi_num_monitor_devices(std::uint32_t* count) {
  *count = static_cast<std::uint32_t>(settings().devices);
  return kSuccess;
}
PLIMSOLL_DEVICE_API int rsmi_dev_name_get(std::uint32_t device, char* name, std::size_t length) {
  if (!is_device(device) || length == 0) return kInvalidArgument;
  std::snprintf(name, length, "%s", settings().name.c_str());
  return settings().name.size() < length ? kSuccess : kInsufficientSize;
}
PLIMSOLL_DEVICE_API int rsmi_dev_pci_id_get(std::uint32_t device, std::uint64_t* bus) {
  if (!is_device(device)) return kInvalidArgument;
  *bus = (static_cast<std::uint64_t>(device) + 1) << 8;  // bus in bits 8 to 15
  return kSuccess;
}
PLIMSOLL_DEVICE_API int rsmi_dev_memory_total_get(std::uint32_t device, int type, std::uint64_t* bytes) {
  if (!is_device(device) || type != kVram) return kInvalidArgument;
  const auto held = lock();
  *bytes = machine().memory_bytes;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int rsmi_dev_memory_usage_get(std::uint32_t device, int type, std::uint64_t* bytes) {
  if (!is_device(device) || type != kVram) return kInvalidArgument;
  const auto held = lock();
  *bytes = machine().devices[device].used;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int rsmi_dev_busy_percent_get(std::uint32_t device, std::uint32_t* percent) {
  if (!is_device(device)) return kInvalidArgument;
  *percent = 0;
  return kSuccess;
}
PLIMSOLL_DEVICE_API int rsmi_status_string(int status, const char** text) {
  *text = status == kSuccess ? "RSMI_STATUS_SUCCESS" : "RSMI_STATUS_NOT_SUPPORTED";
  return kSuccess;
}

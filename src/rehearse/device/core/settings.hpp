/// The environment variables PLIMSOLL_REHEARSE_*, read once. A value that makes no sense ends the process with a message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "export.hpp"

namespace plimsoll::device {

struct Settings {
  std::string record;  ///< path, empty for none
  int devices = 1;     ///< those left by CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES
  std::string name = "Plimsoll stand-in";
  std::uint64_t memory_bytes = 85045870592;
  std::uint64_t context_bytes = 524288000;
  std::uint64_t communicator_bytes = 0;
  int processors = 132;
  int major = 9, minor = 0;
  std::string arch = "gfx942";
  std::uint32_t lag = 0;
  std::size_t keep_bytes = std::size_t{1} << 20;
  bool addresses_rise = false;  ///< as those of runtimes do that only count; a driver's fall
  int nccl_version = 22703;
};

PLIMSOLL_DEVICE_CORE const Settings& settings();
/// In a forked child that has an environment of its own, while it has one thread.
void read_settings_again();

/// Writes "plimsoll rehearse: MESSAGE" to the standard error.
PLIMSOLL_DEVICE_CORE void complain(const std::string& message);

}  // namespace plimsoll::device

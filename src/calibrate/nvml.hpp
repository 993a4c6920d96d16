// NVIDIA's management library by dlopen: clocks, power and memory of its devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "calibrate/dynamic_library.hpp"

namespace plimsoll::calibrate {

/// Devices are named by their PCI addresses ("0000:1b:00.0"): the library counts them in another order than CUDA. Every reading is empty
/// where the library or the device does not give it.
class Nvml {
 public:
  /// Opens and starts the library; `why_not` says why it cannot be used.
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool usable() const { return started_; }
  const std::string& why_not() const { return why_not_; }

  using Device = void*;
  /// nullptr: there is no such device.
  Device at(const std::string& pci_address) const;
  std::optional<double> clock_hertz(Device device) const;  ///< now, of the multiprocessors
  std::optional<double> watts(Device device) const;
  std::optional<double> cap_watts(Device device) const;
  std::optional<std::int64_t> memory_used(Device device) const;
  std::optional<int> busy_percent(Device device) const;

 private:
  template <class... Types, class... Arguments>
  bool call(const char* symbol, Arguments... arguments) const;

  DynamicLibrary library_;
  bool started_ = false;
  std::string why_not_;
};

}  // namespace plimsoll::calibrate

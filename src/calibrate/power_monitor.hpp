// Clock and power of a device while it works, read in a thread of its own.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace plimsoll::calibrate {

struct PowerReading {
  double clock_hertz = 0, watts = 0;  ///< means over the interval; 0: unknown
};

class PowerMonitor {
 public:
  /// Of that device of a backend: amdgpu's sysfs files, else rocm-smi; NVML by the device's PCI address; of the processor nothing is read.
  static std::unique_ptr<PowerMonitor> of(const std::string& backend, int device, const std::string& pci_address);
  virtual ~PowerMonitor() = default;

  virtual void begin() {}
  virtual PowerReading end() { return {}; }
  virtual double cap_watts() const { return 0; }
};

/// Of the kernel module; empty: unknown.
std::string driver_version(const std::string& backend);

}  // namespace plimsoll::calibrate

#include "calibrate/nvml.hpp"

#include <fmt/format.h>

namespace plimsoll::calibrate {
namespace {

constexpr int kMultiprocessorClock = 1;  // nvml.h: NVML_CLOCK_SM

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned device, memory;
};

}  // namespace

template <class... Types, class... Arguments>
bool Nvml::call(const char* symbol, Arguments... arguments) const {
  const auto function = library_.find<int(Types...)>(symbol);
  return started_ && function && function(arguments...) == 0;
}

Nvml::Nvml() : library_({"libnvidia-ml.so.1", "libnvidia-ml.so"}, "PLIMSOLL_NVML_LIBRARY") {
  if (!library_.loaded()) {
    why_not_ = library_.reason();
    return;
  }
  const auto start = library_.find<int()>("nvmlInit_v2");
  const int code = start ? start() : -1;
  started_ = code == 0;
  if (!started_) why_not_ = fmt::format("{}: nvmlInit returns {}", library_.name(), code);
}

Nvml::~Nvml() { call<>("nvmlShutdown"); }

Nvml::Device Nvml::at(const std::string& pci_address) const {
  Device device = nullptr;
  return call<const char*, Device*>("nvmlDeviceGetHandleByPciBusId_v2", pci_address.c_str(), &device) ? device : nullptr;
}

std::optional<double> Nvml::clock_hertz(Device device) const {
  unsigned megahertz = 0;
  if (!call<Device, int, unsigned*>("nvmlDeviceGetClockInfo", device, kMultiprocessorClock, &megahertz)) return std::nullopt;
  return megahertz * 1e6;
}

std::optional<double> Nvml::watts(Device device) const {
  unsigned milliwatts = 0;
  if (!call<Device, unsigned*>("nvmlDeviceGetPowerUsage", device, &milliwatts)) return std::nullopt;
  return milliwatts * 1e-3;
}

std::optional<double> Nvml::cap_watts(Device device) const {
  unsigned milliwatts = 0;
  if (!call<Device, unsigned*>("nvmlDeviceGetEnforcedPowerLimit", device, &milliwatts)) return std::nullopt;
  return milliwatts * 1e-3;
}

std::optional<std::int64_t> Nvml::memory_used(Device device) const {
  Memory memory{};
  if (!call<Device, Memory*>("nvmlDeviceGetMemoryInfo", device, &memory)) return std::nullopt;
  return static_cast<std::int64_t>(memory.used);
}

std::optional<int> Nvml::busy_percent(Device device) const {
  Utilization rates{};
  if (!call<Device, Utilization*>("nvmlDeviceGetUtilizationRates", device, &rates)) return std::nullopt;
  return static_cast<int>(rates.device);
}

}  // namespace plimsoll::calibrate

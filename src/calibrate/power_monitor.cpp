#include "calibrate/power_monitor.hpp"

#include <chrono>
#include <functional>
#include <optional>

#include "calibrate/amd_devices.hpp"
#include "calibrate/nvml.hpp"
#include "calibrate/rocm_smi.hpp"
#include "calibrate/system_files.hpp"

namespace plimsoll::calibrate {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(20);

/// Where one device's clock and power are read; empty results are left out of the mean.
struct Gauge {
  std::function<std::optional<double>()> clock, watts;
  double cap = 0;
};

class ThreadedMonitor : public PowerMonitor {
 public:
  explicit ThreadedMonitor(Gauge gauge) : gauge_(std::move(gauge)), thread_([this] { watch(); }) {}
  ~ThreadedMonitor() override {
    ending_ = true;
    thread_.join();
  }
  void begin() override {
    const std::lock_guard lock(mutex_);
    clocks_ = watts_ = {};
    watching_ = true;
  }
  PowerReading end() override {
    const std::lock_guard lock(mutex_);
    watching_ = false;
    return {clocks_.mean(), watts_.mean()};
  }
  double cap_watts() const override { return gauge_.cap; }

 private:
  struct Mean {
    double sum = 0;
    int count = 0;
    void add(std::optional<double> value) {
      if (value) sum += *value, ++count;
    }
    double mean() const { return count == 0 ? 0 : sum / count; }
  };
  void watch() {
    while (!ending_) {
      std::this_thread::sleep_for(kInterval);
      if (!watching_) continue;
      const auto clock = gauge_.clock(), watts = gauge_.watts();
      const std::lock_guard lock(mutex_);
      clocks_.add(clock);
      watts_.add(watts);
    }
  }

  Gauge gauge_;
  std::mutex mutex_;
  Mean clocks_, watts_;
  std::atomic<bool> watching_{false}, ending_{false};
  std::thread thread_;
};

/// amdgpu's hwmon files: microwatts and hertz.
std::optional<Gauge> sysfs_gauge(int device) {
  const SystemFiles files(system_root());
  const std::vector<AmdDevice> devices = amd_devices(files);
  if (device < 0 || static_cast<std::size_t>(device) >= devices.size()) return std::nullopt;
  const std::string folder = devices[static_cast<std::size_t>(device)].monitor;
  if (folder.empty()) return std::nullopt;
  const std::string power = files.exists(folder + "/power1_input") ? folder + "/power1_input" : folder + "/power1_average";
  const auto read = [files](const std::string& path, double scale) {
    return [files, path, scale]() -> std::optional<double> {
      const auto value = files.number(path);
      return value ? std::optional(static_cast<double>(*value) * scale) : std::nullopt;
    };
  };
  return Gauge{read(folder + "/freq1_input", 1), read(power, 1e-6),
               static_cast<double>(files.number(folder + "/power1_cap").value_or(0)) * 1e-6};
}

std::optional<Gauge> smi_gauge(int device) {
  if (!SystemFiles(system_root()).exists("sys/class/drm")) return std::nullopt;  // the library complains on stderr then
  auto smi = std::make_shared<RocmSmi>();
  const auto index = static_cast<std::uint32_t>(device);
  if (!smi->usable() || index >= smi->devices()) return std::nullopt;
  return Gauge{[smi, index] { return smi->clock_hertz(index); }, [smi, index] { return smi->watts(index); },
               smi->cap_watts(index).value_or(0)};
}

std::optional<Gauge> nvml_gauge(const std::string& pci_address) {
  auto nvml = std::make_shared<Nvml>();
  const Nvml::Device device = nvml->usable() ? nvml->at(pci_address) : nullptr;
  if (!device) return std::nullopt;
  return Gauge{[nvml, device] { return nvml->clock_hertz(device); }, [nvml, device] { return nvml->watts(device); },
               nvml->cap_watts(device).value_or(0)};
}

}  // namespace

std::unique_ptr<PowerMonitor> PowerMonitor::of(const std::string& backend, int device, const std::string& pci_address) {
  if (backend == "cuda")
    if (auto gauge = nvml_gauge(pci_address)) return std::make_unique<ThreadedMonitor>(std::move(*gauge));
  if (backend != "hip") return std::make_unique<PowerMonitor>();
  if (auto gauge = sysfs_gauge(device)) return std::make_unique<ThreadedMonitor>(std::move(*gauge));
  if (auto gauge = smi_gauge(device)) return std::make_unique<ThreadedMonitor>(std::move(*gauge));
  return std::make_unique<PowerMonitor>();
}

std::string driver_version(const std::string& backend) {
  const SystemFiles files(system_root());
  const std::string module = backend == "hip" ? "amdgpu" : "nvidia";
  return files.line("sys/module/" + module + "/version").value_or("");
}

}  // namespace plimsoll::calibrate

// plimsoll doctor: what this machine has, which backends work, and which settings would spoil a measurement.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "calibrate/amd_devices.hpp"
#include "calibrate/backend.hpp"
#include "calibrate/gpu_backend.hpp"
#include "calibrate/nvml.hpp"
#include "calibrate/power_monitor.hpp"
#include "calibrate/rocm_smi.hpp"
#include "plimsoll/calibrate.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace calibrate {
namespace {

constexpr std::int64_t kMebi = 1 << 20;
/// Device memory that an idle driver takes; more than that is somebody's.
constexpr std::int64_t kIdleMemory = 1024 * kMebi;

// ---- the host ----------------------------------------------------------------------------------------------------------

/// The value of a line "key : value".
std::string field(const SystemFiles& files, const std::string& path, const std::string& key) {
  for (const std::string& line : files.lines(path))
    if (line.rfind(key, 0) == 0)
      if (const std::size_t colon = line.find(':'); colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  return {};
}

class Host {
 public:
  Host(const SystemFiles& files, Examination& seen) : files_(files), seen_(seen) {}

  void examine() {
    seen_.processors = static_cast<int>(files_.entries("sys/devices/system/cpu", "cpu").size() - others());
    const auto memory = files_.properties("proc/meminfo");
    if (const auto total = memory.find("MemTotal:"); total != memory.end()) seen_.memory_bytes = total->second * 1024;
    for (const std::string& node : files_.entries("sys/devices/system/node", "node"))
      seen_.numa_nodes.push_back(node + ": processors " + files_.line("sys/devices/system/node/" + node + "/cpulist").value_or("?"));
    numa_balancing();
    governor();
    load();
    quota();
    huge_pages();
    environment();
  }

 private:
  /// cpufreq, cpuidle and the like stand beside cpu0, cpu1, …
  std::size_t others() const {
    const auto names = files_.entries("sys/devices/system/cpu", "cpu");
    return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [](const std::string& name) {
      return name.size() == 3 || name.find_first_not_of("0123456789", 3) != std::string::npos;
    }));
  }
  void find(bool spoils, const std::string& what, const std::string& advice) { seen_.findings.push_back({spoils, what, advice}); }

  void numa_balancing() {
    if (files_.number("proc/sys/kernel/numa_balancing").value_or(0) != 0)
      find(true, "NUMA auto-balancing is on: the kernel stops threads to move their pages", "sudo sysctl kernel.numa_balancing=0");
  }
  void governor() {
    const auto governor = files_.line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if (governor && *governor != "performance")
      find(false, "the processors' clock follows the governor '" + *governor + "'", "sudo cpupower frequency-set -g performance");
  }
  void load() {
    const auto line = files_.line("proc/loadavg");
    const double load = line ? std::strtod(line->c_str(), nullptr) : 0;
    if (seen_.processors > 0 && load > 0.5 * seen_.processors)
      find(true, fmt::format("other work runs: a load of {:.1f} on {} processors", load, seen_.processors), "wait until it has ended");
  }
  void quota() {
    const auto line = files_.line("sys/fs/cgroup/cpu.max");
    if (line && line->rfind("max", 0) != 0)
      find(true, "this container may use the processors only part of the time (cpu.max " + *line + ")", "lift the quota");
  }
  void huge_pages() {
    const auto line = files_.line("sys/kernel/mm/transparent_hugepage/enabled");
    if (line && line->find("[never]") != std::string::npos)
      find(false, "huge pages are off: copies between host and device are slower",
           "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
  }
  void environment() {
    for (const char* name : {"HIP_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL", "AMD_SERIALIZE_COPY"})
      if (const char* value = std::getenv(name); value && *value && std::string(value) != "0")
        find(true, fmt::format("{}={} makes every call wait", name, value), fmt::format("unset {}", name));
    for (const char* name : {"HSA_ENABLE_SDMA", "HSA_ENABLE_PEER_SDMA"})
      if (const char* value = std::getenv(name); value && std::string(value) == "0")
        find(false, fmt::format("{}=0: copies use compute units instead of copy engines", name), "measure as you will train");
    for (const char* name : {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"})
      if (const char* value = std::getenv(name); value) find(false, fmt::format("{}={} hides devices", name, value), {});
  }

  const SystemFiles& files_;
  Examination& seen_;
};

// ---- AMD devices -------------------------------------------------------------------------------------------------------

std::string link_type(std::int64_t type) { return type == 11 ? "xGMI" : type == 2 ? "PCIe" : "other"; }

SeenDevice seen_of(const AmdDevice& device, const std::vector<AmdDevice>& all, const SystemFiles& files) {
  SeenDevice seen;
  seen.backend = "hip";
  seen.name = "AMD " + device.target;
  seen.target = device.target;
  seen.compute_units = device.compute_units;
  seen.dies = device.dies;
  seen.memory_bytes = device.memory_bytes;
  seen.used_bytes = device.used_bytes;
  seen.clock_hertz = static_cast<double>(device.clock_megahertz) * 1e6;
  seen.busy_percent = device.busy_percent;
  seen.numa_node = device.numa_node;
  if (!device.compute_partition.empty())
    seen.partition = device.compute_partition + (device.memory_partition.empty() ? "" : "/" + device.memory_partition);
  if (!device.monitor.empty()) {
    const bool now = files.exists(device.monitor + "/power1_input");
    seen.watts = static_cast<double>(files.number(device.monitor + (now ? "/power1_input" : "/power1_average")).value_or(0)) * 1e-6;
    seen.cap_watts = static_cast<double>(files.number(device.monitor + "/power1_cap").value_or(0)) * 1e-6;
  }
  for (const AmdLink& link : device.links) {
    const auto other = std::find_if(all.begin(), all.end(), [&](const AmdDevice& each) { return each.node == link.node; });
    seen.links.push_back({other == all.end() ? -1 : other - all.begin(), link_type(link.type), link.weight, link.least, link.most});
  }
  return seen;
}

void judge(const AmdDevice& device, std::size_t index, std::vector<Finding>& findings) {
  const std::string name = fmt::format("device {}", index);
  if (device.used_bytes > kIdleMemory)
    findings.push_back({true, fmt::format("{} is in use: {} of its memory are taken", name, to_string(Bytes(device.used_bytes))),
                        "rocm-smi --showpids says by whom"});
  if (device.busy_percent > 5)
    findings.push_back({true, fmt::format("{} is busy ({} %)", name, device.busy_percent), "wait until it is idle"});
  if (device.uncorrectable_errors > 0)
    findings.push_back({true, fmt::format("{} has had {} memory errors that could not be corrected", name, device.uncorrectable_errors),
                        "reset or replace it"});
  if (!device.performance_level.empty() && device.performance_level != "auto" && device.performance_level != "high")
    findings.push_back(
        {true, fmt::format("{} is held at the performance level '{}'", name, device.performance_level), "sudo rocm-smi --resetclocks"});
  if (!device.link_speed.empty() && !device.best_link_speed.empty() && device.link_speed != device.best_link_speed)
    findings.push_back({false, fmt::format("{}: its PCIe link runs at {} of {}", name, device.link_speed, device.best_link_speed),
                        "idle links slow down; check it under load"});
}

/// Settings that AMD recommends for several devices in one node.
void judge_system(const SystemFiles& files, const std::vector<AmdDevice>& devices, std::vector<Finding>& findings) {
  if (!devices.empty() && files.exists("dev/kfd") && !files.writable("dev/kfd"))
    findings.push_back({true, "this user may not open /dev/kfd", "sudo usermod -a -G render,video $USER, then log in again"});
  if (devices.size() < 2) return;
  const std::string command = files.line("proc/cmdline").value_or("");
  if (!command.empty() && command.find("iommu=pt") == std::string::npos)
    findings.push_back({false, "the kernel was not started with iommu=pt: copies between devices may be slow or hang",
                        "add iommu=pt to the kernel's command line"});
}

/// What rocm-smi adds where sysfs says nothing.
void ask_smi(Examination& seen, const SystemFiles& files) {
  if (!files.exists("sys/class/drm")) return;  // without it the library complains on stderr
  const RocmSmi smi;
  if (!smi.usable()) {
    seen.backends.push_back({"rocm-smi", false, smi.why_not()});
    return;
  }
  seen.backends.push_back({"rocm-smi", true, fmt::format("{}, {} devices", smi.version(), smi.devices())});
  for (std::uint32_t i = 0; i < smi.devices() && i < seen.devices.size(); ++i) {
    SeenDevice& device = seen.devices[i];
    if (const auto name = smi.name(i)) device.name = *name;
    if (device.used_bytes < 0) device.used_bytes = smi.memory_used(i).value_or(-1);
    if (device.watts == 0) device.watts = smi.watts(i).value_or(0);
    if (device.cap_watts == 0) device.cap_watts = smi.cap_watts(i).value_or(0);
    if (device.numa_node < 0) device.numa_node = smi.numa_node(i).value_or(-1);
    if (device.busy_percent < 0) device.busy_percent = smi.busy_percent(i).value_or(-1);
  }
}

// ---- backends ------------------------------------------------------------------------------------------------------------

/// What NVML adds; a finding where the device already works.
void ask_nvml(const std::string& pci_address, std::size_t index, SeenDevice& device, std::vector<Finding>& findings) {
  const Nvml nvml;
  const Nvml::Device handle = nvml.usable() ? nvml.at(pci_address) : nullptr;
  if (!handle) return;
  device.used_bytes = nvml.memory_used(handle).value_or(-1);
  device.watts = nvml.watts(handle).value_or(0);
  device.cap_watts = nvml.cap_watts(handle).value_or(0);
  device.busy_percent = nvml.busy_percent(handle).value_or(-1);
  if (device.busy_percent > 5)
    findings.push_back({true, fmt::format("device {} is {} % busy", index, device.busy_percent), "nvidia-smi says who uses it"});
}

/// What calibrate and replay call beside the driver: as far as it loads, since who opens a handle takes memory of the device.
void try_libraries(const std::string& backend, Examination& seen) {
  const auto look = [&](const char* name, const char* without) {
    const DynamicLibrary library(place_of(name));
    seen.backends.push_back({name, library.loaded(), library.loaded() ? library.name() : std::string(without)});
  };
  const bool amd = backend == "hip";
  for (const char* products : {amd ? "hipblaslt" : "cublaslt", amd ? "rocblas" : "cublas"})
    look(products, "products by another library or our own kernels");
  if (!amd) look("cudnn", "attention by our own kernels");
  look(amd ? "rccl" : "nccl", "no collectives");
}

void try_gpu(const std::string& name, FoundDriver found, Examination& seen) {
  int devices = 0;
  if (!found.driver) {
    seen.backends.push_back({name, false, found.why_not});
    return;
  }
  if (const int code = found.driver->count(devices); code != 0 || devices == 0) {
    seen.backends.push_back({name, false, fmt::format("{}: {} ({})", found.driver->library(), found.driver->error_name(code), code)});
    return;
  }
  seen.backends.push_back({name, true, fmt::format("{}, {} devices", found.driver->library(), devices)});
  try_libraries(name, seen);
  if (std::any_of(seen.devices.begin(), seen.devices.end(), [&](const SeenDevice& each) { return each.backend == name; })) return;
  for (int i = 0; i < devices; ++i) {
    SeenDevice device;
    device.backend = name;
    int units = 0, clock = 0;
    if (found.driver->name(i, device.name) != 0 || found.driver->architecture(i, device.target) != 0) continue;
    if (found.driver->compute_units(i, units) == 0) device.compute_units = units;
    if (found.driver->clock_kilohertz(i, clock) == 0) device.clock_hertz = clock * 1e3;
    if (!found.driver->code_object(device.target))
      seen.findings.push_back({true, why_no_code_object(device.target), "build plimsoll with that target"});
    if (name == "cuda") ask_nvml(found.driver->pci_address(i), static_cast<std::size_t>(i), device, seen.findings);
    seen.devices.push_back(device);
  }
}

}  // namespace
}  // namespace calibrate

Examination examine(const std::string& root) {
  const calibrate::SystemFiles files(root);
  Examination seen;
  seen.processor = calibrate::field(files, "proc/cpuinfo", "model name");
  calibrate::Host(files, seen).examine();
  const auto devices = calibrate::amd_devices(files);
  for (const auto& device : devices) {
    calibrate::judge(device, seen.devices.size(), seen.findings);
    seen.devices.push_back(calibrate::seen_of(device, devices, files));
  }
  calibrate::judge_system(files, devices, seen.findings);
  calibrate::ask_smi(seen, files);
  calibrate::try_gpu("hip", calibrate::find_hip_driver(), seen);
  calibrate::try_gpu("cuda", calibrate::find_cuda_driver(), seen);
  seen.backends.push_back({"cpu", true, fmt::format("{} processors", seen.processors)});
  std::stable_partition(seen.findings.begin(), seen.findings.end(), [](const Finding& finding) { return finding.spoils; });
  return seen;
}

namespace calibrate {
namespace {

std::string device_text(const SeenDevice& device, std::size_t index) {
  std::string text = fmt::format("  {} {} ({}), {} compute units", index, device.name, device.target, device.compute_units);
  if (device.dies > 1) text += fmt::format(" on {} dies", device.dies);
  if (device.memory_bytes > 0) text += ", " + to_string(Bytes(device.memory_bytes));
  if (device.used_bytes >= 0) text += fmt::format(", {} used", to_string(Bytes(device.used_bytes)));
  if (device.clock_hertz > 0) text += fmt::format(", up to {:.0f} MHz", device.clock_hertz / 1e6);
  if (device.cap_watts > 0) text += fmt::format(", {:.0f} of {:.0f} W", device.watts, device.cap_watts);
  if (device.numa_node >= 0) text += fmt::format(", NUMA node {}", device.numa_node);
  if (!device.partition.empty()) text += ", " + device.partition;
  text += "\n";
  for (const SeenLink& link : device.links)
    text += fmt::format("    {} to {}, weight {}, {} to {} MB/s\n", link.type, link.to < 0 ? "the host" : fmt::format("device {}", link.to),
                        link.weight, link.least_megabytes, link.most_megabytes);
  return text;
}

nlohmann::ordered_json device_json(const SeenDevice& device) {
  nlohmann::ordered_json links = nlohmann::ordered_json::array();
  for (const SeenLink& link : device.links)
    links.push_back({{"to", link.to},
                     {"type", link.type},
                     {"weight", link.weight},
                     {"min_megabytes_per_second", link.least_megabytes},
                     {"max_megabytes_per_second", link.most_megabytes}});
  return {{"backend", device.backend},
          {"name", device.name},
          {"target", device.target},
          {"compute_units", device.compute_units},
          {"dies", device.dies},
          {"memory_bytes", device.memory_bytes},
          {"used_bytes", device.used_bytes},
          {"clock_hertz", device.clock_hertz},
          {"watts", device.watts},
          {"cap_watts", device.cap_watts},
          {"busy_percent", device.busy_percent},
          {"numa_node", device.numa_node},
          {"partition", device.partition},
          {"links", links}};
}

}  // namespace
}  // namespace calibrate

std::string to_text(const Examination& seen) {
  std::string text = fmt::format("host: {} processors{}, {}\n", seen.processors, seen.processor.empty() ? "" : " (" + seen.processor + ")",
                                 to_string(Bytes(seen.memory_bytes)));
  for (const std::string& node : seen.numa_nodes) text += "  " + node + "\n";
  text += fmt::format("devices: {}\n", seen.devices.empty() ? "none" : std::to_string(seen.devices.size()));
  for (std::size_t i = 0; i < seen.devices.size(); ++i) text += calibrate::device_text(seen.devices[i], i);
  text += "backends\n";
  for (const SeenBackend& backend : seen.backends)
    text += fmt::format("  {:<9} {} {}\n", backend.name, backend.works ? "works:  " : "absent: ", backend.detail);
  if (seen.findings.empty()) return text + "nothing found that would spoil a measurement\n";
  for (const Finding& finding : seen.findings) {
    text += fmt::format("{} {}\n", finding.spoils ? "SPOILS A MEASUREMENT:" : "note:", finding.what);
    if (!finding.advice.empty()) text += "  " + finding.advice + "\n";
  }
  return text;
}

std::string to_json(const Examination& seen) {
  using Json = nlohmann::ordered_json;
  Json devices = Json::array(), backends = Json::array(), findings = Json::array();
  for (const SeenDevice& device : seen.devices) devices.push_back(calibrate::device_json(device));
  for (const SeenBackend& backend : seen.backends)
    backends.push_back({{"name", backend.name}, {"works", backend.works}, {"detail", backend.detail}});
  for (const Finding& finding : seen.findings)
    findings.push_back({{"spoils", finding.spoils}, {"what", finding.what}, {"advice", finding.advice}});
  const Json object{
      {"schema", "plimsoll/doctor/1"}, {"processor", seen.processor}, {"processors", seen.processors}, {"memory_bytes", seen.memory_bytes},
      {"numa_nodes", seen.numa_nodes}, {"devices", devices},          {"backends", backends},          {"findings", findings}};
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll

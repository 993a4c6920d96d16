#include "calibrate/rocm_smi.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <vector>

namespace plimsoll::calibrate {
namespace {

// rocm_smi.h
constexpr int kVram = 0, kSystemClock = 0;
/// From this version on rsmi_frequencies_t begins with `bool has_deep_sleep` and has one entry more.
constexpr std::uint32_t kDeepSleepSince = 6;

struct OldFrequencies {
  std::uint32_t supported, current;
  std::uint64_t frequency[32];
};
struct NewFrequencies {
  bool has_deep_sleep;
  std::uint32_t supported, current;
  std::uint64_t frequency[33];
};
struct Version {
  std::uint32_t major, minor, patch;
  const char* build;
};

template <class Frequencies>
std::optional<double> current_of(const Frequencies& read) {
  if (read.current >= read.supported || read.current >= std::size(read.frequency)) return std::nullopt;
  return static_cast<double>(read.frequency[read.current]);
}

std::vector<std::string> candidates() {
  std::vector<std::string> names = rocm_candidates("librocm_smi64.so", 9, 5);
  names.insert(names.begin() + 5, "librocm_smi64.so.1");  // Debian's
  return names;
}

}  // namespace

template <class... Types, class... Arguments>
bool RocmSmi::call(const char* symbol, Arguments... arguments) const {
  const auto function = library_.find<int(Types...)>(symbol);
  return started_ && function && function(arguments...) == 0;
}

RocmSmi::RocmSmi() : library_(candidates(), "PLIMSOLL_ROCM_SMI_LIBRARY") {
  if (!library_.loaded()) {
    why_not_ = library_.reason();
    return;
  }
  const auto start = library_.find<int(std::uint64_t)>("rsmi_init");
  const int code = start ? start(0) : -1;
  started_ = code == 0;
  if (!started_) {
    why_not_ = fmt::format("{}: rsmi_init returns {}", library_.name(), code);
    return;
  }
  Version version{};
  if (call<Version*>("rsmi_version_get", &version)) major_ = version.major, minor_ = version.minor, patch_ = version.patch;
}

RocmSmi::~RocmSmi() {
  if (started_) call<>("rsmi_shut_down");
}

std::string RocmSmi::version() const { return fmt::format("{} {}.{}.{}", library_.name(), major_, minor_, patch_); }

std::uint32_t RocmSmi::devices() const {
  std::uint32_t count = 0;
  return call<std::uint32_t*>("rsmi_num_monitor_devices", &count) ? count : 0;
}

std::optional<std::string> RocmSmi::name(std::uint32_t device) const {
  std::array<char, 256> text{};
  if (!call<std::uint32_t, char*, std::size_t>("rsmi_dev_name_get", device, text.data(), text.size() - 1)) return std::nullopt;
  return std::string(text.data());
}

std::optional<std::int64_t> RocmSmi::memory_total(std::uint32_t device) const {
  std::uint64_t bytes = 0;
  if (!call<std::uint32_t, int, std::uint64_t*>("rsmi_dev_memory_total_get", device, kVram, &bytes)) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

std::optional<std::int64_t> RocmSmi::memory_used(std::uint32_t device) const {
  std::uint64_t bytes = 0;
  if (!call<std::uint32_t, int, std::uint64_t*>("rsmi_dev_memory_usage_get", device, kVram, &bytes)) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

std::optional<double> RocmSmi::clock_hertz(std::uint32_t device) const {
  if (major_ >= kDeepSleepSince) {
    NewFrequencies read{};
    if (!call<std::uint32_t, int, void*>("rsmi_dev_gpu_clk_freq_get", device, kSystemClock, &read)) return std::nullopt;
    return current_of(read);
  }
  OldFrequencies read{};
  if (!call<std::uint32_t, int, void*>("rsmi_dev_gpu_clk_freq_get", device, kSystemClock, &read)) return std::nullopt;
  return current_of(read);
}

/// Microwatts: rsmi_dev_power_get of newer libraries, socket power of MI300, the average of older ones.
std::optional<double> RocmSmi::watts(std::uint32_t device) const {
  std::uint64_t microwatts = 0;
  int type = 0;
  if (call<std::uint32_t, std::uint64_t*, int*>("rsmi_dev_power_get", device, &microwatts, &type) ||
      call<std::uint32_t, std::uint64_t*>("rsmi_dev_current_socket_power_get", device, &microwatts) ||
      call<std::uint32_t, std::uint32_t, std::uint64_t*>("rsmi_dev_power_ave_get", device, 0, &microwatts))
    return static_cast<double>(microwatts) * 1e-6;
  return std::nullopt;
}

std::optional<double> RocmSmi::cap_watts(std::uint32_t device) const {
  std::uint64_t microwatts = 0;
  if (!call<std::uint32_t, std::uint32_t, std::uint64_t*>("rsmi_dev_power_cap_get", device, 0, &microwatts)) return std::nullopt;
  return static_cast<double>(microwatts) * 1e-6;
}

std::optional<int> RocmSmi::busy_percent(std::uint32_t device) const {
  std::uint32_t percent = 0;
  if (!call<std::uint32_t, std::uint32_t*>("rsmi_dev_busy_percent_get", device, &percent)) return std::nullopt;
  return static_cast<int>(percent);
}

std::optional<int> RocmSmi::numa_node(std::uint32_t device) const {
  std::uint32_t node = 0;
  if (!call<std::uint32_t, std::uint32_t*>("rsmi_topo_get_numa_node_number", device, &node)) return std::nullopt;
  return static_cast<int>(node);
}

std::optional<SmiLink> RocmSmi::link(std::uint32_t from, std::uint32_t to) const {
  SmiLink link;
  std::uint64_t hops = 0, weight = 0;
  if (!call<std::uint32_t, std::uint32_t, std::uint64_t*, int*>("rsmi_topo_get_link_type", from, to, &hops, &link.type))
    return std::nullopt;
  if (call<std::uint32_t, std::uint32_t, std::uint64_t*>("rsmi_topo_get_link_weight", from, to, &weight))
    link.weight = static_cast<std::int64_t>(weight);
  link.hops = static_cast<std::int64_t>(hops);
  return link;
}

}  // namespace plimsoll::calibrate

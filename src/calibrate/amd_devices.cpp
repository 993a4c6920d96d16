#include "calibrate/amd_devices.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll::calibrate {
namespace {

const std::string kNodes = "sys/class/kfd/kfd/topology/nodes";

std::int64_t value(const std::map<std::string, std::int64_t>& properties, const char* key, std::int64_t otherwise = 0) {
  const auto found = properties.find(key);
  return found == properties.end() ? otherwise : found->second;
}

std::vector<AmdLink> links_of(const SystemFiles& files, const std::string& folder) {
  std::vector<AmdLink> links;
  for (const char* kind : {"/io_links", "/p2p_links"})
    for (const std::string& entry : files.entries(folder + kind)) {
      const auto read = files.properties(folder + kind + "/" + entry + "/properties");
      links.push_back(
          {value(read, "node_to"), value(read, "type"), value(read, "weight"), value(read, "min_bandwidth"), value(read, "max_bandwidth")});
    }
  return links;
}

/// Heaps 1 and 2 are the frame buffer, public and private.
std::int64_t memory_of(const SystemFiles& files, const std::string& folder) {
  std::int64_t bytes = 0;
  for (const std::string& entry : files.entries(folder + "/mem_banks")) {
    const auto bank = files.properties(folder + "/mem_banks/" + entry + "/properties");
    const std::int64_t heap = value(bank, "heap_type");
    if (heap == 1 || heap == 2) bytes += value(bank, "size_in_bytes");
  }
  return bytes;
}

AmdDevice read_node(const SystemFiles& files, const std::string& entry, const std::map<std::string, std::int64_t>& properties) {
  const std::string folder = kNodes + "/" + entry;
  AmdDevice device;
  device.node = std::strtoll(entry.c_str(), nullptr, 10);
  device.target = target_of(value(properties, "gfx_target_version"));
  device.compute_units = value(properties, "simd_count") / std::max<std::int64_t>(1, value(properties, "simd_per_cu", 4));
  device.dies = std::max<std::int64_t>(1, value(properties, "num_xcc", 1));
  device.lds_kib = value(properties, "lds_size_in_kb");
  device.clock_megahertz = value(properties, "max_engine_clk_fcompute");
  device.hive = value(properties, "hive_id");
  device.memory_bytes = memory_of(files, folder);
  device.links = links_of(files, folder);
  return device;
}

/// "ue: 0" in amdgpu's error counters.
std::int64_t uncorrectable(const SystemFiles& files, const std::string& folder) {
  const auto counters = files.properties(folder + "/ras/umc_err_count");
  return value(counters, "ue:", -1);
}

void read_card(const SystemFiles& files, const std::string& folder, AmdDevice& device) {
  device.device = folder;
  for (const std::string& entry : files.entries(folder + "/hwmon", "hwmon")) device.monitor = folder + "/hwmon/" + entry;
  device.used_bytes = files.number(folder + "/mem_info_vram_used").value_or(-1);
  device.busy_percent = files.number(folder + "/gpu_busy_percent").value_or(-1);
  device.numa_node = files.number(folder + "/numa_node").value_or(-1);
  device.uncorrectable_errors = uncorrectable(files, folder);
  device.compute_partition = files.line(folder + "/current_compute_partition").value_or("");
  device.memory_partition = files.line(folder + "/current_memory_partition").value_or("");
  device.performance_level = files.line(folder + "/power_dpm_force_performance_level").value_or("");
  device.link_speed = files.line(folder + "/current_link_speed").value_or("");
  device.best_link_speed = files.line(folder + "/max_link_speed").value_or("");
}

}  // namespace

std::string target_of(std::int64_t version) { return fmt::format("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100); }

std::vector<AmdDevice> amd_devices(const SystemFiles& files) {
  std::vector<AmdDevice> devices;
  std::vector<std::string> cards;
  for (const std::string& card : files.entries("sys/class/drm", "card"))
    if (files.exists("sys/class/drm/" + card + "/device/mem_info_vram_total")) cards.push_back("sys/class/drm/" + card + "/device");
  for (const std::string& entry : files.entries(kNodes)) {
    const auto properties = files.properties(kNodes + "/" + entry + "/properties");
    if (value(properties, "simd_count") == 0) continue;  // a processor
    AmdDevice device = read_node(files, entry, properties);
    if (devices.size() < cards.size()) read_card(files, cards[devices.size()], device);  // both in the order of their slots
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace plimsoll::calibrate

// AMD devices as the kernel driver describes them: the topology of KFD and the files of amdgpu, without any library.
#pragma once

#include <string>
#include <vector>

#include "calibrate/system_files.hpp"

namespace plimsoll::calibrate {

struct AmdLink {
  std::int64_t node = 0;  ///< KFD node at the other end
  std::int64_t type = 0;  ///< 2 PCIe, 11 xGMI
  std::int64_t weight = 0;
  std::int64_t least = 0, most = 0;  ///< MB/s
};

struct AmdDevice {
  std::int64_t node = 0;  ///< KFD node
  std::string target;     ///< "gfx942"
  std::int64_t compute_units = 0, dies = 1, lds_kib = 0;
  std::int64_t clock_megahertz = 0, memory_bytes = 0, hive = 0;
  std::vector<AmdLink> links;
  // Of amdgpu, where its files are readable:
  std::string device, monitor;  ///< folders: "sys/class/drm/card1/device", its hwmon
  std::int64_t used_bytes = -1, busy_percent = -1, numa_node = -1, uncorrectable_errors = -1;
  std::string compute_partition, memory_partition, performance_level, link_speed, best_link_speed;
};

std::vector<AmdDevice> amd_devices(const SystemFiles& files);

/// "gfx942" from KFD's 90402: major · 10000 + minor · 100 + stepping, the last two in hexadecimal.
std::string target_of(std::int64_t version);

}  // namespace plimsoll::calibrate

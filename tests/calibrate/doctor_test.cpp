// The doctor on made-up machines: folders with the files that Linux, KFD and amdgpu show.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "calibrate/amd_devices.hpp"
#include "calibrate/rocm_smi.hpp"
#include "plimsoll/calibrate.hpp"

namespace plimsoll {
namespace {

/// A folder that stands for "/".
class Machine {
 public:
  Machine()
      : root_(testing::TempDir() + std::to_string(getpid()) + "machine-" + testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    setenv("PLIMSOLL_HIP_LIBRARY", "/nonexistent/libamdhip64.so", 1);
    write("proc/sys/kernel/numa_balancing", "0\n");
    write("proc/loadavg", "0.02 0.05 0.01 1/100 1\n");
    write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9554 64-Core Processor\n");
    write("proc/meminfo", "MemTotal:       1584000000 kB\n");
    write("sys/devices/system/cpu/cpu0/x", "");
    write("sys/devices/system/cpu/cpu1/x", "");
    write("sys/devices/system/cpu/cpufreq/x", "");
    write("sys/devices/system/node/node0/cpulist", "0-1\n");
  }
  ~Machine() {
    std::filesystem::remove_all(root_);
    unsetenv("PLIMSOLL_HIP_LIBRARY");
  }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }
  /// Two MI300X, linked by xGMI, under one processor.
  void add_devices() const {
    const std::string nodes = "sys/class/kfd/kfd/topology/nodes/";
    write(nodes + "0/properties", "cpu_cores_count 64\nsimd_count 0\n");
    for (int i : {1, 2}) {
      const std::string node = nodes + std::to_string(i);
      write(node + "/properties",
            "simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\nnum_xcc 8\nlds_size_in_kb 64\nmax_engine_clk_fcompute 2100\nhive_id "
            "77\n");
      write(node + "/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 206141652992\nwidth 8192\nmem_clk_max 1300\n");
      write(node + "/io_links/0/properties", "type 2\nnode_to 0\nweight 20\nmin_bandwidth 312\nmax_bandwidth 64000\n");
      write(node + "/p2p_links/0/properties",
            "type 11\nnode_to " + std::to_string(3 - i) + "\nweight 15\nmin_bandwidth 50000\nmax_bandwidth 64000\n");
      const std::string card = "sys/class/drm/card" + std::to_string(i) + "/device/";
      write(card + "mem_info_vram_total", "206141652992\n");
      write(card + "mem_info_vram_used", "297295872\n");
      write(card + "gpu_busy_percent", "0\n");
      write(card + "numa_node", "0\n");
      write(card + "current_compute_partition", "SPX\n");
      write(card + "current_memory_partition", "NPS1\n");
      write(card + "hwmon/hwmon4/power1_average", "140000000\n");
      write(card + "hwmon/hwmon4/power1_cap", "750000000\n");
      write(card + "ras/umc_err_count", "ue: 0\nce: 3\n");
    }
    write("proc/cmdline", "root=/dev/sda1 iommu=pt\n");
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

bool found(const Examination& seen, const std::string& part, bool spoils) {
  for (const Finding& finding : seen.findings)
    if (finding.spoils == spoils && finding.what.find(part) != std::string::npos) return true;
  return false;
}

TEST(Doctor, ReadsTopologyAndCards) {
  const Machine machine;
  machine.add_devices();
  const Examination seen = examine(machine.root());
  EXPECT_EQ(seen.processors, 2);
  EXPECT_EQ(seen.memory_bytes, 1584000000LL * 1024);
  EXPECT_EQ(seen.processor, "AMD EPYC 9554 64-Core Processor");
  ASSERT_EQ(seen.devices.size(), 2u);
  const SeenDevice& device = seen.devices[0];
  EXPECT_EQ(device.target, "gfx942");
  EXPECT_EQ(device.compute_units, 304);
  EXPECT_EQ(device.dies, 8);
  EXPECT_EQ(device.memory_bytes, 206141652992);
  EXPECT_DOUBLE_EQ(device.cap_watts, 750);
  EXPECT_DOUBLE_EQ(device.watts, 140);
  EXPECT_EQ(device.partition, "SPX/NPS1");
  ASSERT_EQ(device.links.size(), 2u);
  EXPECT_EQ(device.links[0].type, "PCIe");
  EXPECT_EQ(device.links[0].to, -1);
  EXPECT_EQ(device.links[1].type, "xGMI");
  EXPECT_EQ(device.links[1].to, 1);
  EXPECT_EQ(device.links[1].most_megabytes, 64000);
  for (const Finding& finding : seen.findings) EXPECT_FALSE(finding.spoils) << finding.what;
  EXPECT_NE(to_json(seen).find("\"plimsoll/doctor/1\""), std::string::npos);
  EXPECT_NE(to_text(seen).find("gfx942"), std::string::npos);
}

TEST(Doctor, NamesWhatSpoils) {
  const Machine machine;
  machine.add_devices();
  machine.write("proc/sys/kernel/numa_balancing", "1\n");
  machine.write("proc/loadavg", "7.5 1 1 1/100 1\n");
  machine.write("proc/cmdline", "root=/dev/sda1\n");
  machine.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  machine.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  machine.write("sys/class/drm/card1/device/mem_info_vram_used", "90000000000\n");
  machine.write("sys/class/drm/card1/device/gpu_busy_percent", "97\n");
  machine.write("sys/class/drm/card2/device/ras/umc_err_count", "ue: 2\nce: 3\n");
  machine.write("sys/class/drm/card2/device/power_dpm_force_performance_level", "low\n");
  const Examination seen = examine(machine.root());
  EXPECT_TRUE(found(seen, "NUMA auto-balancing", true));
  EXPECT_TRUE(found(seen, "a load of 7.5", true));
  EXPECT_TRUE(found(seen, "part of the time", true));
  EXPECT_TRUE(found(seen, "device 0 is in use", true));
  EXPECT_TRUE(found(seen, "device 0 is busy (97 %)", true));
  EXPECT_TRUE(found(seen, "device 1 has had 2 memory errors", true));
  EXPECT_TRUE(found(seen, "performance level 'low'", true));
  EXPECT_TRUE(found(seen, "iommu=pt", false));
  EXPECT_TRUE(found(seen, "powersave", false));
  EXPECT_TRUE(seen.findings.front().spoils);
  EXPECT_FALSE(seen.findings.back().spoils);
}

TEST(Doctor, ALaunchThatBlocks) {
  const Machine machine;
  setenv("HIP_LAUNCH_BLOCKING", "1", 1);
  const Examination seen = examine(machine.root());
  unsetenv("HIP_LAUNCH_BLOCKING");
  EXPECT_TRUE(found(seen, "HIP_LAUNCH_BLOCKING=1", true));
}

TEST(Doctor, DamagedFilesAreNoDevices) {
  const Machine machine;
  machine.write("sys/class/kfd/kfd/topology/nodes/1/properties", "simd_count many\n\x01\x02 99999999999999999999999\n");
  machine.write("sys/class/kfd/kfd/topology/nodes/x/properties", "");
  const Examination seen = examine(machine.root());
  for (const SeenDevice& device : seen.devices) EXPECT_NE(device.backend, "hip");
}

TEST(Doctor, TargetsFromTheirNumbers) {
  // KFD writes major · 10000 + minor · 100 + stepping, names are hexadecimal in the last two places.
  EXPECT_EQ(calibrate::target_of(90402), "gfx942");
  EXPECT_EQ(calibrate::target_of(90010), "gfx90a");
  EXPECT_EQ(calibrate::target_of(90500), "gfx950");
  EXPECT_EQ(calibrate::target_of(110000), "gfx1100");
}

TEST(RocmSmi, BothGenerationsReadTheSame) {
  for (const char* library : {PLIMSOLL_FAKE_SMI5, PLIMSOLL_FAKE_SMI7}) {
    setenv("PLIMSOLL_ROCM_SMI_LIBRARY", library, 1);
    const calibrate::RocmSmi smi;
    unsetenv("PLIMSOLL_ROCM_SMI_LIBRARY");
    ASSERT_TRUE(smi.usable()) << smi.why_not();
    EXPECT_EQ(smi.devices(), 2u);
    EXPECT_EQ(smi.name(1).value_or(""), "AMD Instinct MI300X");
    EXPECT_EQ(smi.name(5), std::nullopt);
    EXPECT_EQ(smi.memory_total(0).value_or(0), 206141652992);
    // The newer structure begins with a bool: read in the old layout, the second entry would be another number.
    EXPECT_DOUBLE_EQ(smi.clock_hertz(0).value_or(0), 1.234e9) << library;
    EXPECT_DOUBLE_EQ(smi.watts(0).value_or(0), 612) << library;
    EXPECT_DOUBLE_EQ(smi.cap_watts(0).value_or(0), 750);
    EXPECT_EQ(smi.link(0, 1)->type, 2);
    EXPECT_EQ(smi.link(0, 0).has_value(), false);
    EXPECT_EQ(smi.busy_percent(0), std::nullopt);  // this library has no such function
  }
}

TEST(RocmSmi, FailsToStart) {
  setenv("PLIMSOLL_ROCM_SMI_LIBRARY", PLIMSOLL_FAKE_SMI7, 1);
  setenv("FAKE_SMI_INIT_ERROR", "8", 1);
  const calibrate::RocmSmi smi;
  unsetenv("FAKE_SMI_INIT_ERROR");
  unsetenv("PLIMSOLL_ROCM_SMI_LIBRARY");
  EXPECT_FALSE(smi.usable());
  EXPECT_NE(smi.why_not().find("rsmi_init returns 8"), std::string::npos);
  EXPECT_EQ(smi.devices(), 0u);
}

}  // namespace
}  // namespace plimsoll

// Two devices of a rocm-smi library; FAKE_SMI_INIT_ERROR makes rsmi_init fail.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define API extern "C" __attribute__((visibility("default")))

namespace {
struct Version {
  std::uint32_t major, minor, patch;
  const char* build;
};
#if FAKE_SMI_GENERATION >= 6
struct Frequencies {
  bool has_deep_sleep;
  std::uint32_t supported, current;
  std::uint64_t frequency[33];
};
#else
struct Frequencies {
  std::uint32_t supported, current;
  std::uint64_t frequency[32];
};
#endif
constexpr std::uint32_t kDevices = 2;
}  // namespace

API int rsmi_init(std::uint64_t) {
  const char* error = std::getenv("FAKE_SMI_INIT_ERROR");
  return error ? std::atoi(error) : 0;
}
API int rsmi_shut_down() { return 0; }
API int rsmi_version_get(Version* version) {
  *version = {FAKE_SMI_GENERATION, 3, 1, "fake"};
  return 0;
}
API int rsmi_num_monitor_devices(std::uint32_t* count) {
  *count = kDevices;
  return 0;
}
API int rsmi_dev_name_get(std::uint32_t device, char* text, std::size_t room) {
  if (device >= kDevices) return 1;
  std::strncpy(text, "AMD Instinct MI300X", room);
  return 0;
}
API int rsmi_dev_memory_total_get(std::uint32_t, int, std::uint64_t* bytes) {
  *bytes = 206141652992;
  return 0;
}
API int rsmi_dev_memory_usage_get(std::uint32_t, int, std::uint64_t* bytes) {
  *bytes = 297295872;
  return 0;
}
API int rsmi_dev_gpu_clk_freq_get(std::uint32_t, int, Frequencies* read) {
  std::memset(read, 0, sizeof *read);
  read->supported = 3;
  read->current = 1;
  read->frequency[0] = 132000000;
  read->frequency[1] = 1234000000;
  read->frequency[2] = 2100000000;
  return 0;
}
#if FAKE_SMI_GENERATION >= 6
API int rsmi_dev_power_get(std::uint32_t, std::uint64_t* microwatts, int* type) {
  *microwatts = 612000000;
  *type = 1;
  return 0;
}
#else
API int rsmi_dev_power_ave_get(std::uint32_t, std::uint32_t, std::uint64_t* microwatts) {
  *microwatts = 612000000;
  return 0;
}
#endif
API int rsmi_dev_power_cap_get(std::uint32_t, std::uint32_t, std::uint64_t* microwatts) {
  *microwatts = 750000000;
  return 0;
}
API int rsmi_topo_get_link_type(std::uint32_t from, std::uint32_t to, std::uint64_t* hops, int* type) {
  if (from == to) return 1;
  *hops = 1;
  *type = 2;
  return 0;
}
API int rsmi_topo_get_link_weight(std::uint32_t, std::uint32_t, std::uint64_t* weight) {
  *weight = 15;
  return 0;
}

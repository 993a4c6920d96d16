#include "properties.hpp"

#include <cstdio>
#include <map>

#include "settings.hpp"

namespace plimsoll::device {
namespace {

constexpr std::uint64_t kKiB = 1024;

struct CapabilityRow {
  int capability;  ///< this and later ones, to the next row
  std::uint64_t shared_per_processor, shared_per_block_optin;
  int threads_per_processor, blocks_per_processor;
};

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr CapabilityRow kCapabilities[] = {
    {10, 48 * kKiB, 48 * kKiB, 2048, 32},    {70, 96 * kKiB, 96 * kKiB, 2048, 32},   {75, 64 * kKiB, 64 * kKiB, 1024, 16},
    {80, 164 * kKiB, 163 * kKiB, 2048, 32},  {86, 100 * kKiB, 99 * kKiB, 1536, 16},  {87, 164 * kKiB, 163 * kKiB, 1536, 16},
    {89, 100 * kKiB, 99 * kKiB, 1536, 24},   {90, 228 * kKiB, 227 * kKiB, 2048, 32}, {100, 228 * kKiB, 227 * kKiB, 2048, 32},
    {110, 228 * kKiB, 227 * kKiB, 1536, 24}, {120, 100 * kKiB, 99 * kKiB, 1536, 24},
};

int capability() { return settings().major * 10 + settings().minor; }

Limits of_capability() {
  Limits limits;
  for (const CapabilityRow& row : kCapabilities) {
    if (row.capability > capability()) break;
    limits.shared_per_processor = row.shared_per_processor;
    limits.shared_per_block_optin = row.shared_per_block_optin;
    limits.threads_per_processor = row.threads_per_processor;
    limits.blocks_per_processor = row.blocks_per_processor;
  }
  if (capability() < 90) limits.l2_bytes = 41943040;
  return limits;
}

// cudaDeviceAttr and CUdevice_attribute, which have the same numbers.
std::map<int, int> attributes() {
  const Limits limits = of_capability();
  std::map<int, int> answers = {
      {1, 1024},
      {2, 1024},
      {3, 1024},
      {4, 64},  // threads of a block, in x, in y, in z
      {5, 0x7fffffff},
      {6, 65535},
      {7, 65535},  // blocks of a grid in x, in y, in z
      {8, static_cast<int>(limits.shared_per_block)},
      {9, 65536},  // constant memory
      {10, limits.warp},
      {11, 0x7fffffff},  // pitch of copies
      {12, 65536},
      {82, 65536},  // registers of a block, of a processor
      {13, limits.clock_khz},
      {36, limits.memory_clock_khz},
      {37, limits.memory_bus_bits},
      {14, 512},
      {51, 32},  // alignment of textures, of pitched ones
      {16, settings().processors},
      {38, limits.l2_bytes},
      {39, limits.threads_per_processor},
      {106, limits.blocks_per_processor},
      {40, 3},  // copy engines
      {75, settings().major},
      {76, settings().minor},
      {81, static_cast<int>(limits.shared_per_processor)},
      {97, static_cast<int>(limits.shared_per_block_optin)},
      {111, 1024},                        // shared memory a block of the system's own
      {120, capability() >= 90 ? 1 : 0},  // clusters
  };
  // Overlap, host mapping, concurrent kernels, unified addresses, priorities, L1 caches, managed memory, preemption, cooperative launch,
  // host registration, virtual memory, file descriptors as handles, memory pools.
  for (int able : {15, 19, 31, 41, 78, 79, 80, 83, 90, 95, 99, 102, 103, 115}) answers[able] = 1;
  return answers;
}

// 64 KiB of LDS a compute unit (160 KiB from CDNA 4, gfx950); wavefronts of 64 on gfx9, of 32 later.
Limits of_arch() {
  const std::string& arch = settings().arch;
  Limits limits;
  const bool cdna = arch.rfind("gfx9", 0) == 0;
  limits.warp = cdna ? 64 : 32;
  limits.shared_per_block = limits.shared_per_block_optin = limits.shared_per_processor = (arch.rfind("gfx95", 0) == 0 ? 160 : 64) * kKiB;
  limits.most_blocks_yz = 0xffffffff;
  limits.registers_per_processor = 131072;
  limits.l2_bytes = 4194304;
  limits.clock_khz = 2100000;
  limits.memory_clock_khz = 1300000;
  limits.memory_bus_bits = 8192;
  return limits;
}

}  // namespace

const Limits& limits_of_accelerator() {
  static const Limits* const once = new Limits(of_capability());
  return *once;
}

const Limits& limits_of_arch() {
  static const Limits* const once = new Limits(of_arch());
  return *once;
}

int attribute(int number) {
  static const std::map<int, int>* const answers = new std::map<int, int>(attributes());
  const auto it = answers->find(number);
  return it == answers->end() ? 0 : it->second;
}

std::string pci_address(int device) {
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02x:00.0", static_cast<unsigned>(device + 1) & 0xffu);
  return text;
}

}  // namespace plimsoll::device

#include "properties.hpp"

#include <cstdio>

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
  const Limits& limits = limits_of_accelerator();
  switch (number) {
    case 1:
    case 2:
    case 3:
      return 1024;  // threads of a block, in x, in y
    case 4:
      return 64;  // in z
    case 5:
      return 0x7fffffff;  // blocks of a grid in x
    case 6:
    case 7:
      return 65535;  // in y, in z
    case 8:
      return static_cast<int>(limits.shared_per_block);
    case 9:
      return 65536;  // constant memory
    case 10:
      return limits.warp;
    case 11:
      return 0x7fffffff;  // pitch of copies
    case 12:
    case 82:
      return 65536;  // registers of a block, of a processor
    case 13:
      return limits.clock_khz;
    case 14:
      return 512;  // alignment of textures
    case 16:
      return settings().processors;
    case 36:
      return limits.memory_clock_khz;
    case 37:
      return limits.memory_bus_bits;
    case 38:
      return limits.l2_bytes;
    case 39:
      return limits.threads_per_processor;
    case 40:
      return 3;  // copy engines
    case 51:
      return 32;  // alignment of pitched textures
    case 75:
      return settings().major;
    case 76:
      return settings().minor;
    case 81:
      return static_cast<int>(limits.shared_per_processor);
    case 97:
      return static_cast<int>(limits.shared_per_block_optin);
    case 106:
      return limits.blocks_per_processor;
    case 111:
      return 1024;  // shared memory a block of the system's own
    case 15:
    case 19:
    case 31:
    case 41:
    case 78:
    case 79:
    case 80:
    case 83:
    case 90:
    case 95:
    case 99:
    case 102:
    case 103:
    case 115:
      return 1;  // overlap, host mapping, concurrent kernels, unified addresses, priorities, L1 caches, managed memory, preemption,
                 // cooperative launch, host registration, virtual memory, file descriptors as handles, memory pools
    case 120:
      return capability() >= 90 ? 1 : 0;  // clusters
    default:
      return 0;
  }
}

std::string pci_address(int device) {
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02x:00.0", static_cast<unsigned>(device + 1) & 0xffu);
  return text;
}

}  // namespace plimsoll::device

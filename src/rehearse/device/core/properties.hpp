/// What an accelerator of the asked-for kind says about itself beyond its name, memory and processors.
#pragma once

#include <cstdint>
#include <string>

#include "export.hpp"

namespace plimsoll::device {

struct Limits {
  std::uint64_t shared_per_block = 49152, shared_per_block_optin = 232448, shared_per_processor = 233472;
  int threads_per_processor = 2048, blocks_per_processor = 32, registers_per_processor = 65536;
  int warp = 32;
  unsigned most_blocks_yz = 65535;
  int l2_bytes = 52428800;
  int clock_khz = 1980000, memory_clock_khz = 2619000, memory_bus_bits = 5120;
};

/// Of the compute capability asked for (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
PLIMSOLL_DEVICE_CORE const Limits& limits_of_accelerator();
/// Of the `gfx` architecture asked for (the CDNA and RDNA ISA documents).
PLIMSOLL_DEVICE_CORE const Limits& limits_of_arch();

/// An attribute by CUDA's number for it (cudaDevAttr…); HIP's are mapped to these by its own interface. 0 for those not listed, as a device
/// answers about what it lacks.
PLIMSOLL_DEVICE_CORE int attribute(int number);

/// "0000:01:00.0"
PLIMSOLL_DEVICE_CORE std::string pci_address(int device);

}  // namespace plimsoll::device

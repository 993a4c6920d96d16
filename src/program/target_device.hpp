/// The device that a program is lowered for: what of it frameworks and their libraries look at when they choose what to allocate and
/// launch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plimsoll/hardware.hpp"

namespace plimsoll::program {

struct TargetDevice {
  int capability = 0;                 ///< CUDA's compute capability as major · 10 + minor: 90; 0 on AMD
  std::string gfx;                    ///< ROCm's name of the architecture, "gfx942"; empty on NVIDIA
  std::int64_t units = 0;             ///< multiprocessors or compute units
  std::int64_t threads_per_unit = 0;  ///< resident at a time
  std::int64_t shared_memory = 0;     ///< bytes that one block can have
  std::int64_t memory = 0;            ///< bytes that the driver reports
  std::int64_t fast_domain = 1;       ///< devices that the node's fast links join

  bool amd() const { return capability == 0; }
  /// Compute capability of at least that; never on AMD.
  bool from(int wanted) const { return capability >= wanted; }
  /// The major number of the compute capability: 9 of Hopper; 0 on AMD.
  int major() const { return capability / 10; }
  /// Whether ROCm's name of the architecture begins so: "gfx94" of the MI300s.
  bool is_gfx(std::string_view family) const { return gfx.compare(0, family.size(), family) == 0; }
};

/// A processor that `plimsoll calibrate` measured: no framework's kernels are known there, so what it replays is another device's program.
bool is_processor(const Accelerator& accelerator);

/// Whose program that is.
inline constexpr const char* kProgramOfProcessors = "h100-sxm";

/// What a program needs to know of the accelerators of that cluster. Throws Error (refused): a device whose file does not say it, by the
/// key that lacks.
TargetDevice target_device(const Cluster& cluster);

}  // namespace plimsoll::program

// What the devices of one process do with each other: copies from one to another, and collectives by the table's own kernels over peer
// access, without any vendor's library.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "calibrate/gpu_backend.hpp"

namespace plimsoll::calibrate {

/// The tool that such samples name.
inline constexpr const char* kPeerTool = "plimsoll peer kernels";

struct PeerMeasurement {
  std::vector<Sample> samples;
  std::string why_not;  ///< no samples: one device only, or two that cannot reach each other
};

/// Measures copies from device 0 and all-reduce, all-gather and reduce-scatter over all devices, up to `largest` bytes, for about
/// `seconds`. Throws Error for a failing call or a wrong answer. Leaves `device` selected.
PeerMeasurement measure_peers(GpuDriver& driver, const DeviceShape& shape, int devices, int device, std::int64_t largest, double seconds,
                              const std::function<bool()>& stop);

}  // namespace plimsoll::calibrate

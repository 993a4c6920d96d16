/// The device that a record was made on, and what a program that ran there may have taken from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/hardware.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

struct RecordedDevice {
  std::string name;
  Bytes memory;
  std::int64_t processors = 0;  ///< SMs or CUs
  int major = 0, minor = 0;     ///< compute capability
  bool asked_for_memory = false;
};

/// Of a record's first device. Throws Error: missing, damaged, or of a program that never used one.
RecordedDevice recorded_device(const std::string& path);

/// What a program recorded on `recorded` might do otherwise on the cluster's devices, a sentence each; empty where it sees nothing else than its
/// record has. Throws Error (unsupported) where its kernels would be others: another vendor, another architecture.
std::vector<std::string> may_differ(const RecordedDevice& recorded, const Cluster& cluster, const std::string& path);

}  // namespace plimsoll

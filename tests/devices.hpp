/// Devices that tests lower programs for.
#pragma once

#include <string>

#include "program/lower.hpp"

namespace plimsoll::program {

/// The traits of a device, or of a whole cluster's: "h100-sxm", "8xb200".
inline TargetDevice device_named(const std::string& name) { return target_device(parse_cluster(name)); }

inline TargetDevice h100() {
  static const TargetDevice device = device_named("h100-sxm");
  return device;
}

/// A run on H100s. What it is made of must live as long as it is used; so below.
inline Lowering on_h100(const Model& model, const Strategy& strategy) { return {model, strategy, h100()}; }

/// A run on a measured row's devices.
inline Lowering on_cluster(const Cluster& cluster, const Model& model, const Strategy& strategy) {
  return {model, strategy, target_device(cluster)};
}

}  // namespace plimsoll::program

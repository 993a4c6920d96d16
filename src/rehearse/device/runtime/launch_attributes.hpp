/// Attributes of an extended launch, the same for the runtime and the driver.
#pragma once

#include "rehearse/device/core/interface.hpp"

namespace plimsoll::device {

struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    unsigned cluster[3];
    int cooperative;
  } value;
};
inline constexpr int kAttributeCooperative = 2, kAttributeCluster = 4;

/// Reads what matters of the attributes of an extended launch.
inline void read_attributes(const LaunchAttribute* attributes, unsigned count, Launch* launch) {
  for (unsigned i = 0; i < count; ++i) {
    if (attributes[i].id == kAttributeCooperative) launch->cooperative = attributes[i].value.cooperative != 0;
    if (attributes[i].id == kAttributeCluster) {
      const unsigned* c = attributes[i].value.cluster;
      launch->cluster = c[0] * c[1] * c[2];
    }
  }
}

}  // namespace plimsoll::device

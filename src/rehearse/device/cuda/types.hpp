/// The CUDA runtime's and driver's plain types, as their public documentation gives them: what crosses the interface, no more.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rehearse/device/core/export.hpp"
#include "rehearse/device/core/handles.hpp"
#include "rehearse/device/core/memory.hpp"
#include "rehearse/device/core/work.hpp"

namespace plimsoll::device::cuda {

using Handle = void*;  ///< of a stream, event, graph, module, function, …

struct Dim3 {
  unsigned x, y, z;
};

inline Grid grid(Dim3 d) { return {d.x, d.y, d.z}; }

/// cudaError_t, remembered as the thread's last error.
inline int give(Status status) { return static_cast<int>(noted(status)); }

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

struct Uuid {
  char bytes[16];
};

/// The same for every process: the number of the device in an otherwise constant id.
inline Uuid uuid_of(int device) {
  Uuid uuid{{'p', 'l', 'i', 'm', 's', 'o', 'l', 'l'}};
  uuid.bytes[15] = static_cast<char>(device + 1);
  return uuid;
}

}  // namespace plimsoll::device::cuda

/// What every interface has in common: handles, three-dimensional sizes, errors of the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "export.hpp"
#include "handles.hpp"
#include "memory.hpp"
#include "work.hpp"

namespace plimsoll::device {

using Handle = void*;  ///< of a stream, event, graph, module, function, …

struct Dim3 {
  unsigned x, y, z;
};

inline Grid grid(Dim3 d) { return {d.x, d.y, d.z}; }

/// cudaError_t or hipError_t, remembered as the thread's last error.
inline int give(Status status) { return static_cast<int>(noted(status)); }

struct Uuid {
  char bytes[16];
};

/// The same for every process: the number of the device in an otherwise constant id.
inline Uuid uuid_of(int device) {
  Uuid uuid{{'p', 'l', 'i', 'm', 's', 'o', 'l', 'l'}};
  uuid.bytes[15] = static_cast<char>(device + 1);
  return uuid;
}

}  // namespace plimsoll::device

// What memory-bound kernels share: how fast a device issues their instructions and moves their bytes.
#pragma once

#include "cost/kernel_constants.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/kernel.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::cost {

/// Bytes a second of kernels that stream.
double streaming_bandwidth(const Accelerator& device);

/// Time to issue so many lane instructions on all compute units.
Seconds issue_time(const Accelerator& device, double instructions);

/// The share of a working set of so many bytes that the last-level cache does not hold: 0 to 1.
double cold_share(const Accelerator& device, double bytes);

/// Time to move the bytes of which `cold` (0 to 1) come from memory, the others from the cache.
Seconds traffic_time(const Accelerator& device, double bytes, double cold);
/// The same of a kernel whose operands were touched just before it: cold is what the cache cannot hold. A device with a measured curve of
/// such `kernels` (StreamingCurve) takes that, less the start that it begins with.
Seconds traffic_time(const Accelerator& device, double bytes, KernelKind kernels);

/// Issue and traffic overlap, but not fully: the root of the sum of their squares (measured: casts, broadcasts, dropout and softmax on
/// devices that differ in bandwidth alone).
Seconds overlapped(Seconds issue, Seconds traffic);

}  // namespace plimsoll::cost

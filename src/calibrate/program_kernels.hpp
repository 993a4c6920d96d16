// How a kernel of a step program runs on a device: products and attention with their shapes, memory-bound kernels with their bytes.
#pragma once

#include "calibrate/backend.hpp"

namespace plimsoll::calibrate {

/// What a program's kernel needs, in bytes of operands in device memory.
struct Operands {
  std::int64_t read = 0, written = 0;
};
Operands operands_of(const plimsoll::Kernel& kernel, const DeviceShape& device);

/// A megabyte of random numbers in (−1, 1), whether read as fp32 or as bf16.
std::vector<std::byte> operand_numbers(const DeviceShape& device, std::uint64_t seed);

/// Issues the kernel with operands at `from` and `to`. Returns the work that was really done. Refuses by name what the device has no
/// kernel for.
Work run_program_kernel(Backend& backend, const plimsoll::Kernel& kernel, void* from, void* to, StreamId stream);

}  // namespace plimsoll::calibrate

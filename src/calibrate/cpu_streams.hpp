// Memory-bound kernels of a step program on the CPU, with exactly the bytes that the program says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "plimsoll/program.hpp"

namespace plimsoll::calibrate {

/// Bytes [first, second) of `bytes` that part `part` of `parts` does, in whole cache lines.
std::pair<std::size_t, std::size_t> share_of(std::size_t bytes, int part, int parts);

/// One part of a kernel that reads `read` bytes and writes `written`: a map over what is both read and written, a sum over what is only
/// read, and a fill of what is only written. A gather reads its pages in a scattered order.
void cpu_stream(plimsoll::KernelKind kind, const void* from, std::int64_t read, void* to, std::int64_t written, int part, int parts);

}  // namespace plimsoll::calibrate

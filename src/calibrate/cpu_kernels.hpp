// The kernels of the table on the CPU: plain functions in the widest vector instructions of this machine, for any number of threads.
#pragma once

#include <string_view>

#include "calibrate/kernels/kernel_table.hpp"

namespace plimsoll::calibrate {

/// One thread's part of a kernel: part `part` of `parts`. Buffers are host pointers in table order. Parts write disjoint elements and
/// wait for nobody: run all of them, in any order, from any threads.
using CpuKernel = void (*)(const Sizes& sizes, void* const* buffers, int part, int parts);

/// The CPU version of a kernel, or nullptr where it has none (collectives, fp8, the matrix rates of fp16 and bf16).
CpuKernel cpu_kernel(std::string_view kernel_name);

/// The instruction set that cpu_kernel chose: "baseline", "x86-64-v3" or "x86-64-v4".
std::string_view cpu_instruction_set();

}  // namespace plimsoll::calibrate

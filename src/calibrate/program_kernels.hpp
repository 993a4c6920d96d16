// How a kernel of a step program runs on a device: products and attention with their shapes, memory-bound kernels with their bytes.
#pragma once

#include "calibrate/backend.hpp"

namespace plimsoll::calibrate {

/// What a program's kernel needs, in bytes of operands in device memory.
struct Operands {
  std::int64_t read = 0, written = 0;
};
Operands operands_of(const plimsoll::Kernel& kernel, Backend& backend);
/// Of all kernels of a program, in their order.
std::vector<Operands> operands_of(const StepProgram& program, Backend& backend);

/// Whether it is a helper of attention (δ, dQ to 16 bits, sums over heads): the pass that it belongs to runs as a whole.
bool runs_within_another(const plimsoll::Kernel& kernel);
/// Whether the framework runs it by cuDNN, as Transformer Engine does too.
bool is_of_cudnn(const Attention& attention);
/// Why a pass runs by our own kernels; empty: the vendor's library runs it, as the framework does.
std::string why_own_attention(const Attention& attention, Backend& backend);

/// A megabyte of random numbers in (−1, 1), whether read as fp32 or as bf16.
std::vector<std::byte> operand_numbers(const DeviceShape& device, std::uint64_t seed);

/// Issues the kernel with operands at `from` and `to`. Returns the work that was really done. Refuses by name what the device has no
/// kernel for.
Work run_program_kernel(Backend& backend, const plimsoll::Kernel& kernel, void* from, void* to, StreamId stream);

}  // namespace plimsoll::calibrate

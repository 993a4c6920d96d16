/// Whose kernels run fused attention, by device: sdp_utils.cpp of PyTorch, setup.py of the flash-attention package.
#pragma once

#include "plimsoll/kernel.hpp"
#include "plimsoll/strategy.hpp"
#include "program/target_device.hpp"

namespace plimsoll::program {

/// Of torch's scaled_dot_product_attention, flash: on ROCm AOTriton's (getROCmFAPreferredBackend).
inline AttentionLibrary torch_flash(const TargetDevice& device) {
  return device.amd() ? AttentionLibrary::aotriton : AttentionLibrary::flash2;
}

/// The same, memory-efficient.
inline AttentionLibrary torch_memory_efficient(const TargetDevice& device) {
  return device.amd() ? AttentionLibrary::aotriton : AttentionLibrary::memory_efficient;
}

/// Of the flash-attention package of that generation: on ROCm Composable Kernel's.
inline AttentionLibrary packaged_flash(const TargetDevice& device, AttentionKernel generation = AttentionKernel::flash) {
  if (device.amd()) return AttentionLibrary::composable_kernel;
  if (generation == AttentionKernel::flash3) return AttentionLibrary::flash3;
  return generation == AttentionKernel::flash4 ? AttentionLibrary::flash4 : AttentionLibrary::flash2;
}

}  // namespace plimsoll::program

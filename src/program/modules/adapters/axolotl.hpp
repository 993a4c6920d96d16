/// axolotl's kernels for adapters (axolotl/kernels/lora.py): autograd functions that stand in the place of PEFT's linears.
#pragma once

#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

/// What of the kernels depends on axolotl's release.
struct AxolotlKernels {
  bool in_place = false;  ///< before 0.18: the gradient of an input takes the input's place, and updates are made before they are added

  static AxolotlKernels of(const Strategy& strategy);
};

/// apply_lora_kernel_patches (axolotl/monkeypatch/lora_kernels.py): in every layer the MLP, the three projections and the output's whose
/// linears are all adapted; others stay PEFT's. Throws Error (refused): attention whose code axolotl does not find, DoRA, 8-bit weights.
void patch_adapters(const std::vector<Module*>& layers, const Model& model, const Strategy& strategy, Tape& tape);

}  // namespace plimsoll::program

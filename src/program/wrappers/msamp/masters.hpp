/// What MS-AMP's optimizers of DeepSpeed share: fp16 masters of FP8Linears' weights beside fp32 ones of all else. Sources:
/// msamp/deepspeed/runtime/{fp8/fused_optimizer,zero/fp8_stage_1_and_2}.py of MS-AMP 0.4.
#pragma once

#include <memory>
#include <vector>

#include "program/wrappers/msamp/model.hpp"

namespace plimsoll::program::msamp {

/// The optimizer's parameters that are not FP8Linears' weights.
std::vector<std::shared_ptr<Parameter>> ordinary(const Model& model);

/// A parameter of the optimizer that no module has.
std::shared_ptr<Parameter> master_parameter(const Tensor& tensor);

/// p.clone() of an fp16 weight; its gradient has the linear's scales.
std::unique_ptr<ScaledLinear> cloned_master(const ScaledLinear& linear);

/// gradient.value.data = values: what it was made as is a view's base (cast_to_fp8's view_as) and lives as long as the gradient.
void move_values(Tensor& gradient, const Tensor& values);

/// has_overflow: the host reads a sum of every tensor, and the largest magnitude of every 8-bit gradient.
void read_overflow(Tape& tape, const std::vector<Tensor>& gradients, const std::vector<const ScaledLinear*>& linears);

}  // namespace plimsoll::program::msamp

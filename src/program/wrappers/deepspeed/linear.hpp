/// DeepSpeed's F.linear under zero.Init. Source: deepspeed/runtime/zero/linear.py.
#pragma once

#include "program/tape.hpp"

namespace plimsoll::program {

/// LinearFunctionForZeroStage3: one autograd function that saves input, weight and bias; its backward gives the gradients in that order.
Tensor zero3_linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

/// torch.nn.functional.linear as it is: it saves the transposed weight, a tensor of its own that keeps the gathered memory when the
/// parameter is given back.
Tensor linear_of_views(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace plimsoll::program

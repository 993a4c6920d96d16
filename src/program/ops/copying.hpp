/// Tensor.copy_: a transfer of memory where both sides lie in one piece in the same order, else a kernel.
#pragma once

#include "program/op.hpp"

namespace plimsoll::program {

/// target.copy_(from), on the device (copy_device_to_device of Copy.cu): no kernel between dense tensors of one type and layout. `from` has
/// target's sizes, or is broadcast to them.
void copy_into(const Tensor& target, const Tensor& from);

/// The same of tensors that are known by their sizes and strides alone.
bool copies_without_kernel(const Dims& sizes, const Dims& strides, const Dims& other_strides);

}  // namespace plimsoll::program

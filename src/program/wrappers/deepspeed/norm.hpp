/// The scalars of DeepSpeed's ZeRO step: whether gradients overflowed, their norm over the ranks, the scale that they are clipped by. Each
/// is a kernel or two on one element. Source: deepspeed/runtime/utils.py and zero/*.py of DeepSpeed 0.19.8.
#pragma once

#include <vector>

#include "program/wrappers/deepspeed/deepspeed.hpp"

namespace plimsoll::program {

/// torch.isfinite: |x| ≠ ∞ and x = x.
Tensor is_finite(const Tensor& x);

/// has_inf_or_nan: a scalar of bools from the largest and the smallest element.
Tensor has_inf_or_nan(const Tensor& gradient);

/// has_overflow: every gradient's check, the count over the ranks, one byte sent and read back by the host.
void check_overflow(Tape& tape, const std::vector<Tensor>& gradients, const DeepSpeedSettings& settings);

/// `sum` (at first no tensor: Python's 0) and the square of a norm.
Tensor with_square(const Tensor& sum, const Tensor& norm);

/// The root of a sum of squares that is summed over the ranks; -1 where it is no finite number.
Tensor root_over_ranks(Tensor total);

/// get_grad_norm_direct behind the norms of the tensors: their squares summed (of none: a zero that the host sends), sent as `sent`,
/// rooted; −1 where that is no number.
Tensor norm_over_ranks(Tape& tape, const std::vector<Tensor>& norms, DType sent);

/// vector_norm of the groups' norms (since 0.19.8 combine_grad_norm_groups), over the loss scale: what engine.get_global_grad_norm() answers.
Tensor combined_norm(const std::vector<Tensor>& groups, const DeepSpeedRelease& release);

/// unscale_and_clip_grads: the factor from the norm, and the gradient times it.
void unscale_and_clip(const Tensor& norm, const Tensor& gradient);

}  // namespace plimsoll::program

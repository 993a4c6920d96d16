/// flash-attention 3 and 4, which keep and need less than 2.
#pragma once

#include "program/ops/ops.hpp"

namespace plimsoll::program {

/// flash_attn (ops.hpp) of the generations behind 2.
Tensor later_flash_attn(const Tensor& query, const Tensor& key, const Tensor& value, const FlashAttnArguments& arguments);

}  // namespace plimsoll::program

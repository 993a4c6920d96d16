/// Which kernels F.scaled_dot_product_attention takes: the rule of PyTorch's release and of the device.
#pragma once

#include "program/ops/ops.hpp"

namespace plimsoll::program {

enum class SdpaBackend { cudnn, flash, efficient, math };

/// aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, select_sdp_backend: the first of cuDNN (where the tape allows it), flash and the
/// memory-efficient kernels that takes these tensors, which they do of [batch, heads, length, dim] alone, else the expression written out.
SdpaBackend sdpa_backend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                         const AttentionArguments& arguments);

}  // namespace plimsoll::program

/// What TorchTitan's gpt-oss does otherwise than its other mixtures (torchtitan/models/gpt_oss/moe.py).
#pragma once

#include "program/module.hpp"

namespace plimsoll::program {

/// GptOssGroupedExperts.forward: rows [rows, hidden] in groups of `counts` [experts] through experts with biases and clamped gates.
Tensor run_gpt_oss_experts(Module& grouped, const Tensor& rows, const Tensor& counts);

}  // namespace plimsoll::program

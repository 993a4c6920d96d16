// What of TorchTitan depends on its release.
#pragma once

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::framework {

/// TorchTitan 0.3, or one without a version; before, versions are dates.
bool torchtitan_0_3(const Strategy& strategy);

/// Where nothing is said. From 0.3 on model_registry's attn_backend is "flex", gpt-oss's "varlen"; flex under context parallelism has no
/// lowering, scaled dot-product attention is taken there.
AttentionKernel torchtitan_attention(const Strategy& strategy, const Model& model);

/// Where nothing is said: chunked from 0.3 on; before, compiled where blocks are, and chunked where chunks are counted.
LossKernel torchtitan_loss(const Strategy& strategy);

}  // namespace plimsoll::framework

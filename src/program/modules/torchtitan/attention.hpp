/// TorchTitan's attention modules (torchtitan/models/common/attention.py, models/deepseek_v3/model.py).
#pragma once

#include <memory>

#include "plimsoll/model.hpp"
#include "program/modules/torchtitan/layers.hpp"
#include "program/modules/torchtitan/rope.hpp"

namespace plimsoll::program {

class TitanAttention {
 public:
  virtual ~TitanAttention() = default;
  /// [batch, length, hidden] and positions [1 or batch, length] to [batch, length, hidden]; with tensor parallelism cut or replicated as the
  /// activations between the blocks are.
  virtual Tensor operator()(const Tensor& input, const Tensor& positions) const = 0;
};

/// The rotary embedding of an attention.
RopeShape shape_of_rope(const TitanRun& run, const AttentionSpec& spec);

/// Adds the module "attention": GQAttention, or DeepSeek's latent attention where `spec` says so. `spec` must outlive it.
/// Throws Error (refused): latent attention under a kernel or a split that is not modelled.
std::unique_ptr<TitanAttention> make_titan_attention(Module& parent, const AttentionSpec& spec, const TitanContext& context);

}  // namespace plimsoll::program

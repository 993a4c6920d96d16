/// An encoder layer whose norms are behind its branches (bert), with dropout of both, as the two graphs that AOTAutograd makes of it.
#pragma once

#include <array>

#include "program/modules/transformers/compiled/layer.hpp"

namespace plimsoll::program {

class CompiledPostNormLayer final : public CompiledLayer {
 public:
  using CompiledLayer::CompiledLayer;

  inductor::Value forward() override;
  std::array<inductor::Value, kArguments> backward(inductor::Value incoming) override;

 private:
  /// What a norm's backward starts from: its input standardized, or what that is made of, and its scale.
  struct Standard {
    Values input;
    inductor::Value scale;
  };

  void compute() override;
  void attend();
  inductor::Value drop(CompiledSlot mask);
  void norm_attention();
  void sum_branches(inductor::Value branch);
  inductor::Value finish();
  bool keeps_standard() const { return s_.casts() || (s_.checkpointed && !forward_only_); }
  Standard standard_of_output();
  inductor::Value standard_of_attention();
  inductor::Value norm_backward(const Norm& norm, inductor::Value first, const Values& gradients, const Standard& standard,
                                const Values& may_replace, inductor::Value mask, Values kernel);
  inductor::Value mlp_backward(inductor::Value masked);
  inductor::Value attention_backward(inductor::Value masked, inductor::Value residual);

  static constexpr Norm kAttentionNorm{kInputNorm, kInputNormBias, kInputMean, kInputScale, kMlpNormed, kMlpNormedOut};

  inductor::Value attention_mask_, mlp_mask_;  ///< what the dropouts multiply by: masks, or in a checkpointed layer what was drawn
  Values attention_kernel_, output_kernel_;
  Values summands_;  ///< of the second norm's input
  inductor::Value masked_;
};

}  // namespace plimsoll::program

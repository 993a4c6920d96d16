/// A decoder layer whose MLP stands beside its attention (gpt_neox, phi), with rotation of a part of each head, as the two graphs that
/// AOTAutograd makes of it.
#pragma once

#include <array>
#include <vector>

#include "program/modules/transformers/compiled/layer.hpp"

namespace plimsoll::program {

class CompiledParallelLayer final : public CompiledLayer {
 public:
  using CompiledLayer::CompiledLayer;

  inductor::Value forward() override;
  std::array<inductor::Value, kArguments> backward(inductor::Value incoming) override;

 private:
  Norm mlp_norm() const;
  Dims turned_sizes(std::int64_t heads) const { return {s_.batch, heads, s_.length, s_.head_dim}; }

  void compute() override;
  void attend();
  inductor::Value project_output_backward(inductor::Value gradient);
  Values projections_backward(const Values& flash);
  inductor::Value join(inductor::Value query, inductor::Value key, inductor::Value value);
  NormGradient norm_sums(const Norm& norm, const Values& gradients);
  void fuse_norms(const std::vector<NormGradient>& norms, const Values& tail);
};

}  // namespace plimsoll::program

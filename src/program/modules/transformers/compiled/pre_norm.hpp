/// A layer with LayerNorms before its branches, which may be dropped out, in the graph of a whole model (gpt2).
#pragma once

#include <array>

#include "program/modules/transformers/compiled/layer.hpp"

namespace plimsoll::program {

class CompiledPreNormLayer final : public CompiledLayer {
 public:
  using CompiledLayer::CompiledLayer;

  inductor::Value forward() override;
  std::array<inductor::Value, kArguments> backward(inductor::Value incoming) override;

 private:
  Values draw(CompiledSlot mask);
  /// What a branch's last product is given of the stream's gradient: through its dropout, in its type.
  inductor::Value enter_branch(inductor::Value gradient, CompiledSlot mask);
};

}  // namespace plimsoll::program

// How the layers of a model follow one another, and the same model with fewer or more of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "plimsoll/model.hpp"

namespace plimsoll::searching {

/// One stack of layers: `prefix` of their own kinds (DeepSeek's dense ones), then a pattern of `period` kinds again and again (gpt-oss: a
/// window and none in turn; 1 where all are alike). The last pattern may be cut short.
struct LayerStack {
  std::size_t first = 0, last = 0;  ///< the model's blocks from `first` on and before `last` are the layers
  std::int64_t prefix = 0, period = 1;

  bool alike() const { return prefix == 0 && period == 1; }
};

/// Nothing where there are two stacks, or layers that follow no pattern that comes at least twice.
std::optional<LayerStack> layer_stack(const Model& model);

/// The same model with another number of layers, which go on in the same pattern.
Model with_layers(const Model& model, const LayerStack& stack, std::int64_t layers);

}  // namespace plimsoll::searching

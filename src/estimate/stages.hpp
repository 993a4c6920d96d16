// Which blocks of the model each pipeline chunk holds.
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

/// `layers` repeats of one block of the model.
struct Part {
  const Block* block;
  std::int64_t layers;
};

/// Parameters on one rank, in elements, by who shares them: each expert is held by fewer data-parallel ranks than the rest of the model.
struct RankElements {
  std::int64_t dense = 0, expert = 0;

  std::int64_t total() const { return dense + expert; }
};

/// One model stage: chunk · pp + rank of a looped pipeline.
struct Stage {
  std::vector<Part> parts;  ///< in order of execution
  bool first = false, last = false;

  /// Parameters on one rank of the stage, cut over tensor- and expert-parallel ranks, in elements.
  std::int64_t parameters(const Strategy& resolved) const;
  /// The same of one repeat of a block; tied tensors count where the original is on another stage.
  static std::int64_t parameters(const Block& block, const Strategy& resolved, bool with_tied = false);
  /// Likewise, experts apart.
  static RankElements elements(const Block& block, const Strategy& resolved, bool with_tied = false);
};

/// The pp · vp stages of a resolved strategy. What comes before the layers is on the first stage, what comes after on the last.
/// Throws Error (refused) when a model with two stacks of layers is pipelined.
std::vector<Stage> stages_of(const Model& model, const Strategy& resolved);

}  // namespace plimsoll::estimation

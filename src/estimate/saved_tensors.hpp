// What the backward pass keeps of a block's forward, by the operators' own rules and storages counted once (docs/modelling.md).
#pragma once

#include "plimsoll/flops.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

/// Bytes of one repeat of a block for one micro-batch on one rank.
struct SavedBytes {
  double kept = 0;        ///< saved for backward, with the strategy's recomputation
  double recomputed = 0;  ///< what comes to life again while the block's backward runs
  double widest = 0;      ///< the largest tensor of the block: gradients of a few such are alive at once
};

/// Elements per position that flow into a block of `model`: what the block before it, or the one it names, gives.
double input_width(const Model& model, const Block& block);

/// `width`: input_width of the block.
SavedBytes saved_bytes(const Block& block, double width, const Strategy& resolved, const FrameworkProfile& framework,
                       const flops::Lengths& lengths);

}  // namespace plimsoll::estimation

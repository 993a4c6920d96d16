// Roofline time of one repeat of a block on one rank: its matrix products, attention and memory-bound kernels, without communication.
#pragma once

#include "plimsoll/flops.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

/// Compute time of one repeat for one micro-batch.
struct BlockTime {
  Seconds forward, backward;
  Seconds recompute;        ///< what the backward pass runs again
  Seconds attention;        ///< of the forward: what context parallelism can hide its ring behind
  Seconds weight_gradient;  ///< of the backward: what tensor parallelism can hide its collectives behind
};

/// Prices blocks for one resolved strategy on one device.
class BlockPricer {
 public:
  BlockPricer(const Strategy& resolved, const Accelerator& device);
  BlockTime price(const Block& block, const flops::Lengths& lengths) const;

 private:
  struct Pass {
    Seconds forward, backward;
  };
  double tokens(const Block& block, const Operator& op, const flops::Lengths& lengths) const;
  Pass linear(const Operator& op, double tokens) const;
  Pass experts(const Block& block, const Operator& op, double tokens) const;
  Pass attention(const Block& block, const Operator& op, const flops::Lengths& lengths) const;
  Pass memory_bound(const Operator& op, double tokens) const;
  bool recomputed(const Block& block, const Operator& op, int linears_before) const;

  const Strategy& strategy_;
  const Accelerator& device_;
  FrameworkProfile framework_;
  MathType products_;  ///< of matrix products: fp8 where the strategy says so
  MathType math_;      ///< of everything else
  double element_;     ///< bytes of an activation element
  bool fused_;         ///< pointwise chains are one kernel
};

}  // namespace plimsoll::estimation

/// Time of matrix products, by the tiles that a library cuts them into.
///
///     time      = start + ⁴√((waves · tile · slowdown)⁴ + (read / bandwidth + results / min(bandwidth, units · drain))⁴) + reduction
///     tile      = k / split · max(2 · tm · tn / rate, (tm + tn) · operand / feed) + tm · tn · result / store
///     waves     = the tiles that the busiest compute unit works on, one after the other
///     reduction = 0, or of a product split along k: its start + (split · 4 + result) · m · n / bandwidth
///
/// `rate` is what one compute unit multiplies in a second, `operand` and `result` are bytes of an element, a part of a split product is
/// written as fp32. Of all tiles and splits the fastest is taken: that is what the libraries' heuristics approximate.
///
/// Power: at the boost clock products draw more than the board's limit, other kernels less. A step cannot end before its energy is spent:
/// with the share s of its time (at the boost clock) in products and attention, those draw p and the rest q board powers, and they are
/// stretched until the mean is 1, by p − (1 − s) / s · (1 − q) where that is above 1.
#pragma once

#include <cmath>
#include <cstdint>

#include "plimsoll/hardware.hpp"
#include "plimsoll/kernel.hpp"

namespace plimsoll {

/// What a kernel runs among.
struct Surroundings {
  double matrix_share = 0;  ///< of a step's time at the boost clock, in products on matrix units and in attention; 0: a kernel alone
};

/// How much longer a kernel takes among those surroundings that draws `power` board powers at the boost clock: 1 or more.
double slowdown(double power, const Accelerator& device, const Surroundings& around);

/// How a matrix product falls into output tiles and waves of compute units.
struct TileCount {
  std::int64_t tiles;
  std::int64_t waves;
  double wave_fill;  ///< tiles / (waves · slots)
  double tile_fill;  ///< useful share of the tiles' area
};
/// `dies` > 1: tiles are dealt round-robin over the dies, each with units/dies slots.
TileCount count_tiles(std::int64_t m, std::int64_t n, Tile tile, std::int64_t units, std::int64_t dies = 1);

/// y[rows, out] = x[rows, in] · Wᵀ, `batch` times, aligned, of operands for that arithmetic; 8- and 4-bit operands give bf16.
Product linear_product(MathType type, std::int64_t rows, std::int64_t out, std::int64_t in, std::int64_t batch = 1);

/// The arithmetic of a product, by which devices have rates.
MathType math_of(const Product& product);
/// "TN": which operands are transposed, as BLAS has it.
std::string layout_of(const Product& product);

/// How a library would run a product, and what its time is made of.
struct ProductPlan {
  const ProductKernels* kernels = nullptr;  ///< of the device
  Tile tile{};
  std::int64_t split = 1, waves = 0;
  Seconds start, compute, traffic, reduction;  ///< compute: slowed down by its surroundings

  /// Whichever is longer, and a little more where the other is nearly as long: neither hides wholly behind the other.
  Seconds time() const {
    const double c = compute.value * compute.value, t = traffic.value * traffic.value;
    return start + Seconds(std::sqrt(std::sqrt(c * c + t * t))) + reduction;
  }
};

/// Throws Error (refused) when the device has no kernels for that arithmetic.
ProductPlan plan_product(const Product& product, const Accelerator& device, const Surroundings& around = {});

/// Whether the kernel is dealt to one block per compute unit at its start, and not all of them find one while `held` units are taken.
bool needs_all_units(const Product& product, const Accelerator& device, int held, const Surroundings& around = {});

/// The time of one launch of that product.
Seconds price(const Product& product, const Accelerator& device, const Surroundings& around = {});

/// The product that does one pass of a convolution without unfolding its image. Channels of the image are padded to 16 bytes, which
/// the loads of matrix units need; where the filter's places are walked one by one (all but the weight's gradient), to 64 bytes, a step.
Product as_product(const Convolution& convolution);

/// The time of that product at the share of a product's rate that the pass reaches (ConvolutionShares).
Seconds price(const Convolution& convolution, const Accelerator& device, const Surroundings& around = {});

}  // namespace plimsoll

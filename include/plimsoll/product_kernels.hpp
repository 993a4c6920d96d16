/// What a device's libraries multiply matrices with: families of kernels, and the constants of their law (product_cost.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/kernel.hpp"
#include "plimsoll/sourced.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// An output tile in BLAS's column-major terms: rows of op(A) by columns of op(B).
struct Tile {
  std::int64_t m, n;
};

/// One family of product kernels: those of one instruction, with loads of one width.
struct ProductKernels {
  /// Types that the family multiplies, and the share of each one's peak that a tile's main loop reaches at the boost clock.
  struct Rate {
    MathType type;
    std::vector<Scaling> scalings;  ///< of 8- and 4-bit operands; empty: any
    Sourced<double> share;
  };
  std::string name;                  ///< "wgmma", "simt"
  std::int64_t alignment = 1;        ///< bytes that its loads need
  std::vector<std::string> layouts;  ///< "TN", "NN", "NT", "TT": op(A) and op(B); empty: any
  bool grouped = false;              ///< of many products in one launch, each with its own matrix
  std::vector<Tile> tiles;           ///< that the library chooses from
  std::string tiles_source;
  std::int64_t tiles_per_unit = 1;  ///< that share a compute unit
  bool one_block_per_unit = false;  ///< a launch deals all its tiles to one block per compute unit
  Sourced<Seconds> start;           ///< of a kernel: launch on the device, filling the pipeline, its last store
  Sourced<BytesPerSecond> feed;     ///< operands that one compute unit takes in
  Sourced<BytesPerSecond> store;    ///< results that one compute unit writes, its main loop waiting
  Sourced<BytesPerSecond> drain;    ///< results that one compute unit writes while others multiply; 0: as fast as memory takes them
  Sourced<double> power;            ///< drawn at the boost clock by products in a row, in board powers; below 1: never throttled
  std::vector<Rate> rates;

  const Rate* rate(MathType type, Scaling scaling) const;
};

/// What a pass of a convolution reaches of the rate of the product that does the same arithmetic.
struct ConvolutionShares {
  Sourced<double> forward, input_gradient, weight_gradient;
};

/// Constants of matrix products.
struct ProductConstants {
  Sourced<Seconds> start;           ///< of kernels on matrix units
  Sourced<Seconds> reduction;       ///< start of the kernel that adds the parts of a product split along k
  Sourced<double> power_elsewhere;  ///< drawn by the kernels of a step that are neither products nor attention, in board powers
  Sourced<double> second_wave;      ///< share of a kernel's time that its last blocks take where they found no unit free; 0: no such kernels
  std::vector<ProductKernels> kernels;
  ConvolutionShares convolution;
};

}  // namespace plimsoll

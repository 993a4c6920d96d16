// The terms of the GEMM time model, for one choice of output tile and split of k. gemm_time takes the best choice; the fit of a device's
// constants (calibrate) solves the same equation for them.
#pragma once

#include <cstdint>

#include "plimsoll/hardware.hpp"

namespace plimsoll::cost {

struct GemmShape {
  std::int64_t m, n, k, batch;
};

inline constexpr std::int64_t kSplits[] = {1, 2, 3, 4, 8};

/// time = start + waves · (tile_work / rate + epilogue) + reduction, waves = q · whole + (1 − q) · balanced.
struct GemmChoice {
  double whole_waves;     ///< every wave takes as long as a full one
  double balanced_waves;  ///< work is dealt perfectly
  double tile_work;       ///< FLOPs that the whole device could do while one unit does a tile, operand traffic of small tiles included
  double reduction;       ///< seconds to add up the parts of k
  double waves(double quantisation) const { return quantisation * whole_waves + (1 - quantisation) * balanced_waves; }
};

GemmChoice gemm_choice(const Accelerator& device, const GemmShape& gemm, Tile tile, std::int64_t split);

/// Seconds to move operands and result once.
double gemm_traffic_time(const Accelerator& device, MathType type, const GemmShape& gemm);

}  // namespace plimsoll::cost

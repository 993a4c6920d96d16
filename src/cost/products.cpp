// Time of matrix products: tiles and waves of compute units on one side, the operands' traffic on the other.
#include <algorithm>
#include <limits>
#include <optional>

#include "cost/gemm_choice.hpp"
#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

/// Share of the peak rate that the main loop of a GEMM reaches at full clock (measured 0.85 to 0.90 on Hopper with zeros as operands).
constexpr double kMainLoop = 0.88;
/// A tile's arithmetic intensity tm·tn/(tm+tn) at which operand traffic halves the rate of the main loop.
constexpr double kHalfIntensity = 16;
std::int64_t bytes_of(MathType type) {
  switch (type) {
    case MathType::fp64:
      return 8;
    case MathType::fp32:
    case MathType::tf32:
      return 4;
    case MathType::fp16:
    case MathType::bf16:
      return 2;
    default:
      return 1;
  }
}

double intensity_share(Tile tile) {
  const double intensity = static_cast<double>(tile.m) * static_cast<double>(tile.n) / static_cast<double>(tile.m + tile.n);
  return intensity / (intensity + kHalfIntensity);
}

double streaming_bandwidth(const Accelerator& device) { return device.memory_bandwidth.value.value * device.memory_efficiency.value; }

/// The time measured for exactly this product, if it was.
std::optional<Seconds> measured_gemm(const Accelerator& device, MathType type, const Product& product) {
  for (const GemmTimes& times : device.gemm_times) {
    if (times.type != type) continue;
    for (const GemmTimes::Point& point : times.points)
      if (point.m == product.m && point.n == product.n && point.k == product.k && point.batch == product.batch) return point.time;
  }
  return std::nullopt;
}

/// The share of the rate that a tile reaches, against that of the device's widest.
double tile_share(const Accelerator& device, Tile tile) {
  double widest = 0;
  for (const Tile& each : device.gemm.tiles) widest = std::max(widest, intensity_share(each));
  return intensity_share(tile) / widest;
}

}  // namespace

namespace cost {

GemmChoice gemm_choice(const Accelerator& device, const GemmShape& gemm, Tile tile, std::int64_t split) {
  const std::int64_t tiles = count_tiles(gemm.m, gemm.n, tile, device.compute_units).tiles * gemm.batch * split;
  const std::int64_t per_die = device.compute_units / device.dies;
  const double k = static_cast<double>(gemm.k) / static_cast<double>(split);
  const double partial = static_cast<double>(gemm.m) * static_cast<double>(gemm.n * gemm.batch * split);
  GemmChoice choice{};
  choice.whole_waves = static_cast<double>(ceil_div(ceil_div(tiles, device.dies), per_die));
  choice.balanced_waves = std::max(1.0, static_cast<double>(tiles) / device.compute_units);  // never less than one tile's time
  choice.tile_work = 2.0 * static_cast<double>(tile.m * tile.n) * k * device.compute_units / tile_share(device, tile);
  choice.reduction = split == 1 ? 0 : 8.0 * partial / streaming_bandwidth(device);
  return choice;
}

double gemm_traffic_time(const Accelerator& device, MathType type, const GemmShape& gemm) {
  const double element = static_cast<double>(bytes_of(type)), result = std::max(element, 2.0);
  const double rows = static_cast<double>(gemm.m), columns = static_cast<double>(gemm.n), depth = static_cast<double>(gemm.k);
  const double bytes = static_cast<double>(gemm.batch) * (element * (rows + columns) * depth + result * rows * columns);
  return bytes / streaming_bandwidth(device);
}

}  // namespace cost

TileCount count_tiles(std::int64_t m, std::int64_t n, Tile tile, std::int64_t units, std::int64_t dies) {
  const std::int64_t rows = ceil_div(m, tile.m), columns = ceil_div(n, tile.n);
  TileCount count{rows * columns, 0, 0, 0};
  count.waves = ceil_div(ceil_div(count.tiles, dies), units / dies);
  count.wave_fill = static_cast<double>(count.tiles) / static_cast<double>(count.waves * units);
  count.tile_fill =
      static_cast<double>(m) * static_cast<double>(n) / (static_cast<double>(rows * tile.m) * static_cast<double>(columns * tile.n));
  return count;
}

Seconds gemm_time(const Accelerator& device, MathType type, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch,
                  Clock clock) {
  if (m <= 0 || n <= 0 || k <= 0 || batch <= 0) return Seconds();
  const cost::GemmShape gemm{m, n, k, batch};
  const double rate = clock == Clock::sustained ? device.sustained(type).value : device.peak(type).value * kMainLoop;
  const double quantisation = device.gemm.quantisation.value, epilogue = device.gemm.epilogue.value.value;
  double compute = std::numeric_limits<double>::infinity();
  for (const Tile& tile : device.gemm.tiles)
    for (std::int64_t split : cost::kSplits) {
      if (split > k) continue;
      const cost::GemmChoice choice = cost::gemm_choice(device, gemm, tile, split);
      compute = std::min(compute, choice.waves(quantisation) * (choice.tile_work / rate + epilogue) + choice.reduction);
    }
  return device.gemm.start.value + Seconds(std::max(compute, cost::gemm_traffic_time(device, type, gemm)));
}

Seconds price(const Product& product, const Accelerator& device) {
  const MathType math = product.arithmetic == Arithmetic::tf32 ? MathType::tf32 : math_of(product.a);
  if (const auto measured = measured_gemm(device, math, product)) return *measured;
  return gemm_time(device, math, product.m, product.n, product.k, product.batch);
}

Seconds price(const Convolution& convolution, const Accelerator& device) {
  const Kernel kernel{convolution};
  const Seconds compute = device.gemm.start.value + Flops(kernel.flops()) / device.sustained(math_of(convolution.type));
  return std::max(compute, memory_bound_time(device, Bytes(kernel.bytes())));
}

}  // namespace plimsoll

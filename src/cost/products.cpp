// Time of matrix products: product_cost.hpp has the law.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "cost/power.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

/// Ways to split k over several tiles of the same result.
constexpr std::array<std::int64_t, 11> kSplits{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
/// A part shorter than this does not fill a pipeline of loads.
constexpr std::int64_t kLeastPart = 256;
/// Parts of a split product are added as fp32.
constexpr double kPartBytes = 4;

/// A kernel's tiles with what one of them costs, without its length in k.
struct TileCost {
  double step;    ///< seconds for each element of k
  double finish;  ///< seconds to write the result
};

class Planner {
 public:
  Planner(const Product& product, const Accelerator& device, const ProductKernels& kernels, double rate, double slowdown)
      : product_(product),
        device_(device),
        kernels_(kernels),
        rate_(rate / device.compute_units),
        slowdown_(slowdown),
        bandwidth_(device.memory_bandwidth.value.value * device.memory_efficiency.value) {}

  ProductPlan best() const {
    ProductPlan best;
    double least = std::numeric_limits<double>::infinity();
    const Seconds traffic = this->traffic();
    for (const Tile& tile : kernels_.tiles) {
      const TileCost whole = cost_of(tile, result_bytes()), part = cost_of(tile, kPartBytes);
      const std::int64_t tiles = ceil_div(product_.m, tile.m) * ceil_div(product_.n, tile.n) * product_.batch;
      if (exceeds(at_least(tiles, whole), least)) continue;
      for (const std::int64_t split : kSplits) {
        if (split > 1 && split * kLeastPart > product_.k) break;
        const ProductPlan plan = with(tile, split, tiles * split, split > 1 ? part : whole, traffic);
        if (exceeds((plan.start + plan.compute + plan.reduction).value, least)) continue;
        const double time = plan.time().value;
        if (time < least) least = time, best = plan;
      }
    }
    return best;
  }

 private:
  /// What is read at the memory's bandwidth, and what is written at most as fast as all units together drain it.
  Seconds traffic() const {
    const double m = static_cast<double>(product_.m), n = static_cast<double>(product_.n), k = static_cast<double>(product_.k);
    const double batch = static_cast<double>(product_.batch), written = batch * m * n * static_cast<double>(size_of(product_.result));
    const double read = batch * (m * operand_bytes(product_.a, product_.scaling) + n * operand_bytes(product_.b, product_.scaling)) * k +
                        (product_.accumulates ? written : 0);
    const double drain = kernels_.drain.value.value * static_cast<double>(device_.compute_units);
    return Seconds(read / bandwidth_ + written / (drain > 0 ? std::min(drain, bandwidth_) : bandwidth_));
  }

  /// Read as well where the product is added to it.
  double result_bytes() const { return static_cast<double>(size_of(product_.result)) * (product_.accumulates ? 2 : 1); }

  static double operand_bytes(DType type, Scaling scaling) {
    constexpr double kScaleOfMxfp8 = 1.0 / 32, kBytesOfNvfp4 = 0.5 + 1.0 / 16;  // one byte of scale for 32 and for 16 elements
    if (scaling == Scaling::nvfp4) return kBytesOfNvfp4;
    return static_cast<double>(size_of(type)) + (scaling == Scaling::mxfp8 ? kScaleOfMxfp8 : 0);
  }

  /// `written`: bytes of an element of what a tile writes.
  TileCost cost_of(Tile tile, double written) const {
    const double m = static_cast<double>(tile.m), n = static_cast<double>(tile.n);
    const double operands = m * operand_bytes(product_.a, product_.scaling) + n * operand_bytes(product_.b, product_.scaling);
    return {std::max(2 * m * n / rate_, operands / kernels_.feed.value.value), m * n * written / kernels_.store.value.value};
  }

  /// Seconds that no split of so many tiles undercuts: all units are busy from the first to the last, and nothing but steps along k takes time.
  double at_least(std::int64_t tiles, const TileCost& cost) const {
    const double units = static_cast<double>(device_.compute_units / device_.dies * device_.dies);
    return kernels_.start.value.value + static_cast<double>(tiles) / units * static_cast<double>(product_.k) * cost.step * slowdown_;
  }
  /// Beyond what rounding may have added.
  static bool exceeds(double seconds, double least) {
    constexpr double kRounding = 1e-9;
    return seconds * (1 - kRounding) > least;
  }

  /// Tiles of the busiest unit: they are dealt over the dies in turn, and share a unit `tiles_per_unit` at a time.
  std::int64_t waves(std::int64_t tiles) const {
    const std::int64_t together = kernels_.tiles_per_unit, slots = device_.compute_units / device_.dies * together;
    return ceil_div(ceil_div(tiles, device_.dies), slots) * together;
  }

  ProductPlan with(Tile tile, std::int64_t split, std::int64_t tiles, const TileCost& cost, Seconds traffic) const {
    ProductPlan plan{&kernels_, tile, split, waves(tiles), kernels_.start.value, {}, traffic, {}};
    const double length = static_cast<double>(product_.k) / static_cast<double>(split);
    plan.compute = Seconds(static_cast<double>(plan.waves) * (length * cost.step + cost.finish) * slowdown_);
    if (split > 1) plan.reduction = reduction(split);
    return plan;
  }

  Seconds reduction(std::int64_t split) const {
    const double results = static_cast<double>(product_.m) * static_cast<double>(product_.n * product_.batch);
    return device_.gemm.reduction.value + Seconds(results * (kPartBytes * static_cast<double>(split) + result_bytes()) / bandwidth_);
  }

  const Product& product_;
  const Accelerator& device_;
  const ProductKernels& kernels_;
  double rate_;  ///< of one compute unit, FLOP/s
  double slowdown_, bandwidth_;
};

DType operand_of(MathType type) {
  switch (type) {
    case MathType::fp64:
      return DType::fp64;
    case MathType::fp32:
    case MathType::tf32:
      return DType::fp32;
    case MathType::fp16:
      return DType::fp16;
    case MathType::bf16:
      return DType::bf16;
    case MathType::int8:
      return DType::int8;
    case MathType::fp8:
    case MathType::fp4:
      return DType::fp8;  // fp4 by its scaling
    case MathType::fp6:
      break;
  }
  refuse("no tensor has elements of " + std::string(name_of(type)));
}

/// The time measured for exactly this product, if it was.
std::optional<Seconds> measured_time(const Product& product, const Accelerator& device) {
  for (const GemmTimes& times : device.gemm_times) {
    if (times.type != math_of(product)) continue;
    for (const GemmTimes::Point& point : times.points)
      if (point.m == product.m && point.n == product.n && point.k == product.k && point.batch == product.batch &&
          (point.layout.empty() || point.layout == layout_of(product)))
        return point.time;
  }
  return std::nullopt;
}

bool has_layout(const ProductKernels& kernels, const Product& product) {
  return kernels.layouts.empty() || std::find(kernels.layouts.begin(), kernels.layouts.end(), layout_of(product)) != kernels.layouts.end();
}

/// Whether the family multiplies those operands.
bool takes(const ProductKernels& kernels, const Product& product, MathType type) {
  return kernels.rate(type, product.scaling) != nullptr && has_layout(kernels, product) && kernels.alignment <= product.alignment;
}

/// Those made for groups where there are some; of the rest those with the widest loads.
bool better(const ProductKernels& kernels, const ProductKernels& other) {
  return kernels.grouped != other.grouped ? kernels.grouped : kernels.alignment > other.alignment;
}

const ProductKernels& kernels_for(const Product& product, MathType type, const Accelerator& device) {
  const ProductKernels* best = nullptr;
  const bool groups = product.grouped && product.batch > 1;  // one group is a plain product
  for (const ProductKernels& kernels : device.gemm.kernels)
    if ((groups || !kernels.grouped) && takes(kernels, product, type) && (best == nullptr || better(kernels, *best))) best = &kernels;
  if (best != nullptr) return *best;
  device.rate(type);  // refuses by name what the device has no arithmetic for
  refuse("there is no measured or derived kernel for products of " + std::string(name_of(type)),
         "hardware/" + device.name + "#/gemm/kernels");
}

}  // namespace

double cost::boost_power(const Product& product, const Accelerator& device) { return kernels_for(product, math_of(product), device).power.value; }

double slowdown(double power, const Accelerator& device, const Surroundings& around) {
  const double share = std::clamp(around.matrix_share, 0.0, 1.0);
  if (share == 0) return 1;
  return std::max(1.0, power - (1 - share) / share * (1 - device.gemm.power_elsewhere.value));
}

TileCount count_tiles(std::int64_t m, std::int64_t n, Tile tile, std::int64_t units, std::int64_t dies) {
  const std::int64_t rows = ceil_div(m, tile.m), columns = ceil_div(n, tile.n);
  TileCount count{rows * columns, 0, 0, 0};
  count.waves = ceil_div(ceil_div(count.tiles, dies), units / dies);
  count.wave_fill = static_cast<double>(count.tiles) / static_cast<double>(count.waves * units);
  count.tile_fill =
      static_cast<double>(m) * static_cast<double>(n) / (static_cast<double>(rows * tile.m) * static_cast<double>(columns * tile.n));
  return count;
}

ProductPlan plan_product(const Product& product, const Accelerator& device, const Surroundings& around) {
  if (product.m <= 0 || product.n <= 0 || product.k <= 0 || product.batch <= 0) return {};
  const MathType type = math_of(product);
  const ProductKernels& kernels = kernels_for(product, type, device);
  const double rate = device.peak(type).value * kernels.rate(type, product.scaling)->share.value;
  return Planner(product, device, kernels, rate, slowdown(kernels.power.value, device, around)).best();
}

bool needs_all_units(const Product& product, const Accelerator& device, int held, const Surroundings& around) {
  const auto deals_at_once = [](const ProductKernels& kernels) { return kernels.one_block_per_unit; };
  if (std::none_of(device.gemm.kernels.begin(), device.gemm.kernels.end(), deals_at_once)) return false;
  const ProductPlan plan = plan_product(product, device, around);
  if (!plan.kernels || !plan.kernels->one_block_per_unit) return false;
  const std::int64_t tiles = count_tiles(product.m, product.n, plan.tile, device.compute_units).tiles * product.batch;
  return tiles * plan.split > device.compute_units - held;
}

Seconds price(const Product& product, const Accelerator& device, const Surroundings& around) {
  if (const auto measured = measured_time(product, device)) return *measured;
  return plan_product(product, device, around).time();
}

MathType math_of(const Product& product) {
  if (product.arithmetic == Arithmetic::tf32) return MathType::tf32;
  if (product.arithmetic == Arithmetic::simt) return MathType::fp32;
  if (product.scaling == Scaling::nvfp4) return MathType::fp4;
  return math_of(size_of(product.a) < size_of(product.b) ? product.b : product.a);
}

std::string layout_of(const Product& product) { return {product.transpose_a ? 'T' : 'N', product.transpose_b ? 'T' : 'N'}; }

Product linear_product(MathType type, std::int64_t rows, std::int64_t out, std::int64_t in, std::int64_t batch) {
  Product product;
  product.m = out, product.n = rows, product.k = in, product.batch = batch;
  product.transpose_a = true;
  product.a = product.b = operand_of(type);
  product.result = size_of(product.a) == 1 ? DType::bf16 : product.a;
  if (type == MathType::tf32) product.arithmetic = Arithmetic::tf32;
  if (type == MathType::fp4) product.scaling = Scaling::nvfp4;
  return product;
}

Seconds gemm_time(const Accelerator& device, MathType type, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch) {
  return plan_product(linear_product(type, m, n, k, batch), device).time();
}

}  // namespace plimsoll

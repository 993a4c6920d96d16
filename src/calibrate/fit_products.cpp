// Constants of matrix products, by non-negative least squares on the terms of their law (product_cost.hpp).
//
// With the plan of every product fixed (tile, split, what bounds it, what its traffic adds) its time is linear in 1 / rate, 1 / feed, 1 /
// store and the start. Planning and solving take turns until neither changes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "calibrate/backend.hpp"
#include "calibrate/fit.hpp"
#include "calibrate/least_squares.hpp"
#include "calibrate/statistics.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

constexpr int kTurns = 12;
/// Samples of a family that tell what its main loop, its operands and its results take.
constexpr std::size_t kEnough = 30;
/// Of a family's start: what takes longer says nothing of it.
constexpr double kFarFromStart = 20;
constexpr double kLeastShare = 1e-3, kMostShare = 1.0;  // that a file holds

bool is_own(const Sample& sample) { return sample.kernel.rfind("gemm_", 0) == 0; }

bool has_kernels(const Accelerator& device, MathType type) {
  const auto multiplies = [&](const ProductKernels& family) { return family.rate(type, Scaling::none) != nullptr; };
  return std::any_of(device.gemm.kernels.begin(), device.gemm.kernels.end(), multiplies);
}

/// A family that a fit added for products of ours (`add_family`).
bool is_measured_family(const ProductKernels& family) { return family.tiles_source == kSource; }

/// Whether a vendor's kernels are known to multiply it: the same before a fit and after it.
bool has_library_kernels(const Accelerator& device, MathType type) {
  return std::any_of(device.gemm.kernels.begin(), device.gemm.kernels.end(), [&](const ProductKernels& family) {
    return !is_measured_family(family) && family.rate(type, Scaling::none) != nullptr;
  });
}

/// Products of a vendor's library stand for what a framework runs. Our own do only where nothing is known of such a library.
std::vector<Sample> representative(const std::vector<Sample>& products, const Accelerator& device) {
  std::vector<Sample> kept;
  for (const Sample& sample : products) {
    const auto by_library = [&](const Sample& other) { return other.type == sample.type && !is_own(other); };
    const bool stands =
        !is_own(sample) || (!has_library_kernels(device, math_named(sample.type)) && std::none_of(products.begin(), products.end(), by_library));
    if (stands) kept.push_back(sample);
  }
  return kept;
}

/// Of products timed several times, by several tools, the fastest counts: it is what a library at its best does. Those of a model's step
/// were timed as the step runs them: their mean counts, and nothing else of that shape.
double representative_time(const std::vector<Sample>& several) {
  double sum = 0, fastest = HUGE_VAL;
  int in_step = 0;
  for (const Sample& sample : several) {
    fastest = std::min(fastest, boost_seconds(sample));
    if (sample.reuse >= 0) sum += boost_seconds(sample), ++in_step;
  }
  return in_step > 0 ? sum / in_step : fastest;
}

/// One sample of every type, layout and shape, with its representative time.
std::vector<Sample> distinct(const std::vector<Sample>& products) {
  std::map<std::tuple<std::string, std::string, std::vector<std::int64_t>>, std::vector<Sample>> shapes;
  for (const Sample& sample : products)
    shapes[{sample.type, sample.layout, {sample.m, sample.n, sample.k, sample.batch}}].push_back(sample);
  std::vector<Sample> list;
  for (const auto& [shape, several] : shapes) {
    list.push_back(several.front());
    list.back().seconds = representative_time(several);
  }
  return list;
}

/// A library's calls take the host that long, whatever the device does: what is near the shortest call of its type says nothing of
/// products.
std::vector<Sample> beyond_the_host(const std::vector<Sample>& products) {
  constexpr double kFarFromIt = 2;
  std::map<std::string, double> shortest;
  for (const Sample& sample : products) {
    double& least = shortest.emplace(sample.type, HUGE_VAL).first->second;
    least = std::min(least, sample.seconds);
  }
  std::vector<Sample> kept;
  for (const Sample& sample : products)
    if (sample.seconds > kFarFromIt * shortest[sample.type]) kept.push_back(sample);
  return kept;
}

/// The product as it ran: alone, or in a step whose other kernels hold the clock down.
ProductPlan planned(const Sample& sample, const Accelerator& device) {
  return plan_product(product_of(sample), device, {sample.matrix_share});
}

/// Unknowns of one family of kernels: its start where a sample is short enough to tell it; feed and store where enough samples tell them
/// apart from the rates.
struct Columns {
  std::size_t samples = 0;
  double shortest = HUGE_VAL;  ///< seconds
  std::optional<std::size_t> start, feed, store;
};

class ProductFitter {
 public:
  ProductFitter(const std::vector<Sample>& products, Accelerator& device) : products_(products), device_(device) {
    for (const Sample& sample : products_) {
      const ProductKernels* family = planned(sample, device_).kernels;
      Columns& columns = columns_[family];
      ++columns.samples;
      columns.shortest = std::min(columns.shortest, sample.seconds);
      rates_.emplace(std::pair{family, sample.type}, 0);
    }
    for (auto& [key, column] : rates_) column = unknowns_++;
    for (auto& [family, columns] : columns_) {
      if (columns.shortest <= kFarFromStart * family->start.value.value) columns.start = unknowns_++;
      if (columns.samples >= kEnough) columns.feed = unknowns_++, columns.store = unknowns_++;
    }
  }

  /// False: the samples do not determine the constants; the device is as it was.
  bool fit() {
    const Accelerator before = device_;
    std::vector<double> best;
    double least = HUGE_VAL;
    for (int turn = 0; turn < kTurns; ++turn) {
      const std::vector<Equation> list = equations();
      if (list.size() < unknowns_ + 1) break;
      const std::vector<double> solved = fit_nonnegative(list);
      apply(solved);
      const double error = model_error();
      if (error < least) least = error, best = solved;
    }
    if (best.empty())
      device_.gemm = before.gemm;
    else
      apply(best);
    return !best.empty();
  }

 private:
  static std::size_t index_in(const Accelerator& device, const ProductKernels* family) {
    return static_cast<std::size_t>(family - device.gemm.kernels.data());
  }

  double rate_of(const ProductKernels& family, const Product& product, MathType type) const {
    return device_.peak(type).value * family.rate(type, product.scaling)->share.value / device_.compute_units;
  }

  std::vector<Equation> equations() const {
    std::vector<Equation> list;
    for (const Sample& sample : products_) {
      const Product product = product_of(sample);
      const ProductPlan plan = planned(sample, device_);
      if (plan.compute < plan.traffic || sample.seconds - plan.reduction.value <= 2 * plan.traffic.value) continue;
      list.push_back(equation(sample, product, plan));
      if (list.back().value <= 0) list.pop_back();
    }
    return list;
  }

  Equation equation(const Sample& sample, const Product& product, const ProductPlan& plan) const {
    const Columns columns = columns_.at(plan.kernels);
    const double m = static_cast<double>(plan.tile.m), n = static_cast<double>(plan.tile.n), waves = static_cast<double>(plan.waves);
    const double length = static_cast<double>(product.k) / static_cast<double>(plan.split);
    const double work = 2 * m * n * length, operands = (m + n) * static_cast<double>(size_of(product.a)) * length;
    const double result = static_cast<double>(plan.split > 1 ? size_of(DType::fp32) : size_of(product.result));
    const double loaded = waves * operands / plan.kernels->feed.value.value, stored = waves * m * n * result;
    const bool fed = loaded > waves * work / rate_of(*plan.kernels, product, math_named(sample.type));
    // What traffic adds is taken from the last turn's plan.
    const double hidden = plan.time().value - (plan.start + plan.compute + plan.reduction).value;
    Equation equation{std::vector<double>(unknowns_, 0.0), sample.seconds - plan.reduction.value - hidden};
    if (columns.start)
      equation.coefficients[*columns.start] = 1;
    else
      equation.value -= plan.start.value;
    if (!fed)
      equation.coefficients[rates_.at({plan.kernels, sample.type})] =
          waves * work * slowdown(plan.kernels->power.value, device_, {sample.matrix_share});
    else if (columns.feed)
      equation.coefficients[*columns.feed] = waves * operands;
    else
      equation.value -= loaded;
    if (columns.store)
      equation.coefficients[*columns.store] = stored;
    else
      equation.value -= stored / plan.kernels->store.value.value;
    return equation;
  }

  void apply(const std::vector<double>& solved) {
    for (const auto& [key, column] : rates_) {
      if (solved[column] <= 0) continue;
      ProductKernels& family = device_.gemm.kernels[index_in(device_, key.first)];
      const MathType type = math_named(key.second);
      const double rate = device_.compute_units / solved[column];
      for (ProductKernels::Rate& each : family.rates)
        if (&each == family.rate(type, Scaling::none))
          each.share = calibrated(std::clamp(rate / device_.peak(type).value, kLeastShare, kMostShare));  // what a file holds
    }
    for (const auto& [pointer, columns] : columns_) {
      ProductKernels& family = device_.gemm.kernels[index_in(device_, pointer)];
      if (columns.feed && solved[*columns.feed] > 0) family.feed = calibrated(BytesPerSecond(1 / solved[*columns.feed]));
      if (columns.store && solved[*columns.store] > 0) family.store = calibrated(BytesPerSecond(1 / solved[*columns.store]));
      if (columns.start && solved[*columns.start] > 0) family.start = calibrated(Seconds(solved[*columns.start]));
    }
  }

  double model_error() const {
    double sum = 0;
    for (const Sample& sample : products_) {
      const double error = std::log(planned(sample, device_).time().value / sample.seconds);
      sum += std::min(std::abs(error), 1.0);  // a library's odd choice must not decide
    }
    return sum;
  }

  const std::vector<Sample>& products_;
  Accelerator& device_;
  std::map<const ProductKernels*, Columns> columns_;
  std::map<std::pair<const ProductKernels*, std::string>, std::size_t> rates_;
  std::size_t unknowns_ = 0;
};

/// The best register rate of that arithmetic, or 0. Operands of tf32 kernels are fp32: the kernel's name tells.
double matrix_rate(const std::vector<Sample>& samples, const std::string& type) {
  double best = 0;
  for (const Sample& sample : of_kind(samples, SampleKind::matrix_rate)) {
    const bool rounds = sample.kernel.find("tf32") != std::string::npos;
    if ((rounds ? "tf32" : sample.type) == type) best = std::max(best, sample.flops / sample.fastest);
  }
  return best;
}

/// Of products that do not determine more: what the fastest reached.
double best_rate(const std::vector<Sample>& products, const std::string& type) {
  double best = 0;
  for (const Sample& sample : products)
    if (sample.type == type) best = std::max(best, sample.flops / sample.seconds);
  return best;
}

/// A peak that no sample is above: a data sheet's stays, unless something faster was measured.
void raise_peak(Accelerator& device, MathType type, double measured) {
  auto found = std::find_if(device.rates.begin(), device.rates.end(), [&](const ComputeRate& rate) { return rate.type == type; });
  if (found == device.rates.end()) {
    device.rates.push_back({type, {}, {}});
    found = device.rates.end() - 1;
  }
  const double sheet = found->peak.value.value;
  if (sheet >= measured) return;
  found->peak = {FlopsPerSecond(measured), Provenance::measured, kSource};
  for (ProductKernels& family : device.gemm.kernels)  // the rate of what was not measured stays
    for (ProductKernels::Rate& rate : family.rates)
      if (rate.type == type) rate.share.value *= sheet / measured;
}

/// Kernels of no known library multiply what no family of the device does: in tiles of a size that any device's caches hold.
void add_family(Accelerator& device, const std::string& type) {
  const MathType math = math_named(type);
  if (has_kernels(device, math)) return;
  ProductKernels family;
  family.name = "measured " + type;
  family.tiles = {{128, 128}, {64, 64}, {32, 32}};
  family.tiles_source = kSource;
  const auto working = [](auto value) { return Sourced<decltype(value)>{value, Provenance::assumed, kSource}; };
  family.start = working(Seconds(5e-6));
  family.feed = working(BytesPerSecond(1e12));
  family.store = working(BytesPerSecond(1e12));
  family.power = working(1.0);
  family.rates.push_back({math, {}, working(0.9)});
  device.gemm.kernels.push_back(std::move(family));
}

/// What large products hold: of the main loop's rate what tiles and waves leave. `reached` is no more than the peak (`raise_peak`).
void set_sustained(Accelerator& device, MathType type, double reached) {
  for (ComputeRate& rate : device.rates)
    if (rate.type == type) rate.sustained = calibrated(reached / rate.peak.value.value);
}

/// Whether the device's file says what it holds: a peak that was raised from nothing does not.
bool has_sustained(const Accelerator& device, MathType type) {
  return std::any_of(device.rates.begin(), device.rates.end(), [&](const ComputeRate& rate) { return rate.type == type && rate.sustained.value > 0; });
}

void keep_times(const std::vector<Sample>& products, Accelerator& device) {
  device.gemm_times.clear();
  for (const Sample& sample : products) {
    const MathType type = math_named(sample.type);
    if (device.gemm_times.empty() || device.gemm_times.back().type != type)
      device.gemm_times.push_back({type, Provenance::measured, kSource, {}});
    device.gemm_times.back().points.push_back({sample.m, sample.n, sample.k, sample.batch, Seconds(sample.seconds), sample.layout});
  }
}

std::vector<std::string> types_of(const std::vector<Sample>& products) {
  std::vector<std::string> types;
  for (const Sample& sample : products)
    if (std::find(types.begin(), types.end(), sample.type) == types.end()) types.push_back(sample.type);
  return types;
}

std::vector<Sample> products_of(const std::vector<Sample>& samples, const Accelerator& device) {
  return distinct(representative(of_kind(samples, SampleKind::gemm), device));
}

double error_of(const Sample& sample, const Accelerator& device) {
  return std::abs(planned(sample, device).time().value / sample.seconds - 1);
}

/// Five fits, each held against the fifth that it has not seen: errors by type. Empty: four fifths do not determine the constants.
std::map<std::string, std::vector<double>> left_out_errors(const std::vector<Sample>& timed, const Accelerator& start) {
  constexpr std::size_t kFolds = 5;
  std::map<std::string, std::vector<double>> errors;
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    Accelerator device = start;
    std::vector<Sample> seen;
    for (std::size_t i = 0; i < timed.size(); ++i)
      if (i % kFolds != fold) seen.push_back(timed[i]);
    if (seen.empty() || !ProductFitter(seen, device).fit()) return {};
    for (std::size_t i = fold; i < timed.size(); i += kFolds) errors[timed[i].type].push_back(error_of(timed[i], device));
  }
  return errors;
}

/// Types whose products the device's constants, as they are, price better than a fit prices those that it has not seen.
std::vector<std::string> better_unfitted(const std::vector<Sample>& timed, const Accelerator& device) {
  std::map<std::string, std::vector<double>> unfitted;
  for (const Sample& sample : timed) unfitted[sample.type].push_back(error_of(sample, device));
  std::vector<std::string> types;
  for (const auto& [type, errors] : left_out_errors(timed, device))
    if (quantile(unfitted[type], 0.9) + median(unfitted[type]) <= quantile(errors, 0.9) + median(errors)) types.push_back(type);
  return types;
}

/// Whether the kernels that multiply it have constants of this calibration.
bool is_fitted(const Sample& sample, const Accelerator& device) {
  const Product product = product_of(sample);
  return planned(sample, device).kernels->rate(math_named(sample.type), product.scaling)->share.source == kSource;
}

/// Bytes, up to 16, of which the leading dimensions of matrices without gaps are multiples.
std::int16_t alignment_of(const Product& product) {
  const GemmCall call = gemm_call(product);
  const std::int64_t all = (call.leading_a() | call.leading_b()) * size_of(product.a) | product.m * size_of(product.result);
  return static_cast<std::int16_t>(std::min<std::int64_t>(all & -all, 16));
}

}  // namespace

double boost_seconds(const Sample& sample) { return sample.watts > 0 && sample.matrix_share == 0 ? sample.fastest : sample.seconds; }

Product product_of(const Sample& sample) {
  Product product = linear_product(math_named(sample.type), sample.n, sample.m, sample.k, sample.batch);
  product.transpose_a = !sample.layout.empty() && sample.layout[0] == 'T';  // without a layout as the tools multiply: both operands in rows
  product.transpose_b = sample.layout.size() > 1 && sample.layout[1] == 'T';
  product.alignment = alignment_of(product);
  return product;
}

void fit_gemm(const std::vector<Sample>& samples, Calibration& calibration) {
  Accelerator& device = calibration.cluster.accelerator;
  for (const Sample& sample : of_kind(samples, SampleKind::matrix_rate)) math_named(sample.type);
  const std::vector<Sample> all = of_kind(samples, SampleKind::gemm), standing = representative(all, device);
  const std::vector<Sample> products = distinct(standing);
  for (const std::string& type : types_of(all))
    if (std::none_of(products.begin(), products.end(), [&](const Sample& sample) { return sample.type == type; }))
      calibration.notes.push_back(fmt::format("products of {}: no library's were timed, the constants of {} stay", type, calibration.base));
  if (products.empty()) return;
  std::vector<Sample> timed = beyond_the_host(products);
  for (const std::string& type : types_of(products)) {
    raise_peak(device, math_named(type), std::max(matrix_rate(samples, type), best_rate(standing, type)));
    add_family(device, type);
    const bool tells = std::any_of(timed.begin(), timed.end(), [&](const Sample& sample) { return sample.type == type; });
    if (tells || !has_sustained(device, math_named(type)))
      set_sustained(device, math_named(type), best_rate(standing, type));
    else
      calibration.notes.push_back(fmt::format("products of {}: all take about as long as a call, the sustained rate of {} stays", type, calibration.base));
  }
  for (const std::string& type : better_unfitted(timed, device)) {
    std::erase_if(timed, [&](const Sample& sample) { return sample.type == type; });
    calibration.notes.push_back(
        fmt::format("products of {}: the constants that were there price them better than a fit prices those that it has not seen", type));
  }
  if (!timed.empty() && !ProductFitter(timed, device).fit())
    calibration.notes.push_back(
        fmt::format("matrix products: {} shapes do not determine the constants of {} types", timed.size(), types_of(timed).size()));
  keep_times(products, device);
}

std::vector<Sample> fitted_products(const std::vector<Sample>& samples, const Accelerator& device) {
  return beyond_the_host(products_of(samples, device));
}

std::vector<FitResidual> left_out_products(const std::vector<Sample>& samples, const Calibration& calibration) {
  const Accelerator& device = calibration.cluster.accelerator;
  std::vector<Sample> timed = fitted_products(samples, device);
  std::erase_if(timed, [&](const Sample& sample) { return !is_fitted(sample, device); });
  std::map<std::string, std::vector<double>> errors;
  for (auto& [type, list] : left_out_errors(timed, device)) errors["gemm " + type + ", left out"] = std::move(list);
  return residuals_of(errors);
}

}  // namespace plimsoll::calibrate

// Kernels: memory-bound ones as lines with kinks, matrix products by non-negative least squares on the terms of the cost model.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "calibrate/fit.hpp"
#include "calibrate/least_squares.hpp"
#include "calibrate/statistics.hpp"
#include "cost/gemm_choice.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

constexpr std::size_t kMostKinks = 3;
/// A stream is out of the caches when it moves this many times the last-level cache.
constexpr double kCachesPassed = 3;

// ---- streams -------------------------------------------------------------------------------------------------------

StreamingCurve curve_of(const std::string& group, const KinkedLine& line, double largest) {
  StreamingCurve curve{group, Provenance::calibrated, kSource, {{Bytes(0), Seconds(line.start)}}};
  std::vector<double> sizes = line.knots;
  if (sizes.empty() || sizes.back() < largest) sizes.push_back(largest);
  for (double size : sizes) curve.points.push_back({Bytes(std::llround(size)), Seconds(line.at(size))});
  return curve;
}

/// Averages neighbours until no time is less than the one before: a curve that rises (pool adjacent violators).
std::vector<TimedSize> rising(const std::vector<TimedSize>& points) {
  struct Pool {
    double sum;
    std::size_t count;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Pool> pools;
  for (const TimedSize& point : points) {
    pools.push_back({point.seconds, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() >= pools.back().mean()) {
      pools[pools.size() - 2].sum += pools.back().sum, pools[pools.size() - 2].count += pools.back().count;
      pools.pop_back();
    }
  }
  std::vector<TimedSize> risen;
  for (const Pool& pool : pools)
    for (std::size_t i = 0; i < pool.count; ++i) risen.push_back({points[risen.size()].size, pool.mean()});
  return risen;
}

/// The sizes of a model's step as they were measured; before and behind them the line of the machine, which no time is below.
StreamingCurve curve_through(const std::vector<TimedSize>& points, const StreamingCurve& machine) {
  std::map<double, std::vector<double>> times;
  for (const TimedSize& point : points) times[point.size].push_back(point.seconds);
  std::vector<TimedSize> list{{0, machine.points.front().time.value}};
  for (const auto& [size, several] : times) list.push_back({size, median(several)});
  for (const auto& point : machine.points)
    if (static_cast<double>(point.bytes.count) > list.back().size) list.push_back({static_cast<double>(point.bytes.count), point.time.value});
  list.front().seconds = std::min(list.front().seconds, list[1].seconds);
  StreamingCurve curve{machine.kernels, Provenance::measured, kSource, {}};
  for (const TimedSize& point : rising(list)) curve.points.push_back({Bytes(std::llround(point.size)), Seconds(point.seconds)});
  return curve;
}

bool have_one_size(const std::vector<TimedSize>& points) {
  return std::all_of(points.begin(), points.end(), [&](const TimedSize& point) { return point.size == points.front().size; });
}

/// The bandwidth of streams that no cache holds: the median of the rates of the largest.
void fit_bandwidth(const std::vector<Sample>& streams, Accelerator& device) {
  std::int64_t largest = 0;
  for (const Sample& sample : streams)
    if (sample.reuse < 0) largest = std::max(largest, sample.bytes);
  const double passed = kCachesPassed * static_cast<double>(device.last_level_cache.value.count);
  std::vector<double> rates;
  for (const Sample& sample : streams)
    if (static_cast<double>(sample.bytes) >= std::min(passed, static_cast<double>(largest)) && sample.group == "elementwise" && sample.reuse < 0)
      rates.push_back(static_cast<double>(sample.bytes) / sample.seconds);
  if (rates.empty()) return;
  const double rate = median(rates);
  if (rate > device.memory_bandwidth.value.value) device.memory_bandwidth = {BytesPerSecond(rate), Provenance::measured, kSource};
  device.memory_efficiency = calibrated(rate / device.memory_bandwidth.value.value);
}

// ---- products ------------------------------------------------------------------------------------------------------

/// Constants in the units of the equations.
struct GemmFit {
  std::vector<double> inverse_rates;  ///< by type, in the order of the rates
  double epilogue = 0, start = 0, quantisation = 0;
  double error = HUGE_VAL;
};

class GemmFitter {
 public:
  GemmFitter(const std::vector<Sample>& products, const Accelerator& device) : products_(products), device_(device) {
    for (const Sample& sample : products)
      if (std::find(types_.begin(), types_.end(), sample.type) == types_.end()) types_.push_back(sample.type);
  }
  const std::vector<std::string>& types() const { return types_; }

  /// The quantisation enters by a product with the others: it is searched on a grid.
  GemmFit fit() const {
    GemmFit best;
    for (int step = 0; step <= 10; ++step) {
      const GemmFit found = with_quantisation(step / 10.0);
      if (found.error < best.error - 1e-9) best = found;
    }
    return best;
  }

 private:
  std::size_t type_index(const Sample& sample) const {
    return static_cast<std::size_t>(std::find(types_.begin(), types_.end(), sample.type) - types_.begin());
  }

  /// The rates of the best samples, nothing else: from there tiles are chosen first.
  GemmFit first_guess(double quantisation) const {
    GemmFit guess;
    guess.quantisation = quantisation;
    guess.inverse_rates.assign(types_.size(), HUGE_VAL);
    double least = HUGE_VAL;
    for (const Sample& sample : products_) {
      double& inverse = guess.inverse_rates[type_index(sample)];
      inverse = std::min(inverse, sample.seconds / sample.flops);
      least = std::min(least, sample.seconds);
    }
    guess.start = least / 2;
    return guess;
  }

  /// The tile and split that the library would take under those constants.
  cost::GemmChoice best_choice(const Sample& sample, const GemmFit& at) const {
    const cost::GemmShape shape{sample.m, sample.n, sample.k, sample.batch};
    cost::GemmChoice best{};
    double least = HUGE_VAL;
    for (const Tile& tile : device_.gemm.tiles)
      for (std::int64_t split : cost::kSplits) {
        if (split > sample.k) continue;
        const cost::GemmChoice choice = cost::gemm_choice(device_, shape, tile, split);
        const double time =
            choice.waves(at.quantisation) * (choice.tile_work * at.inverse_rates[type_index(sample)] + at.epilogue) + choice.reduction;
        if (time < least) least = time, best = choice;
      }
    return best;
  }

  /// rate · waves · work + epilogue · waves + start = time − reduction, for the products that arithmetic bounds.
  std::vector<Equation> equations(const GemmFit& at) const {
    std::vector<Equation> list;
    for (const Sample& sample : products_) {
      const cost::GemmChoice choice = best_choice(sample, at);
      const double traffic = cost::gemm_traffic_time(device_, math_named(sample.type), {sample.m, sample.n, sample.k, sample.batch});
      const double waves = choice.waves(at.quantisation), compute = waves * choice.tile_work * at.inverse_rates[type_index(sample)];
      if (traffic > compute || sample.seconds <= choice.reduction) continue;
      Equation equation{std::vector<double>(types_.size() + 2, 0.0), sample.seconds - choice.reduction};
      equation.coefficients[type_index(sample)] = waves * choice.tile_work;
      equation.coefficients[types_.size()] = waves;
      equation.coefficients[types_.size() + 1] = 1;
      list.push_back(std::move(equation));
    }
    return list;
  }

  /// Choosing tiles and solving for the constants in turns, until neither changes.
  GemmFit with_quantisation(double quantisation) const {
    GemmFit now = first_guess(quantisation), best;
    constexpr int kTurns = 12;
    for (int turn = 0; turn < kTurns; ++turn) {
      const std::vector<Equation> list = equations(now);
      if (list.size() < types_.size() + 2) return best;
      const std::vector<double> solved = fit_nonnegative(list);
      for (std::size_t i = 0; i < types_.size(); ++i)
        if (solved[i] > 0) now.inverse_rates[i] = solved[i];
      now.epilogue = solved[types_.size()];
      now.start = solved[types_.size() + 1];
      now.error = relative_error(list, solved);
      if (now.error < best.error) best = now;
    }
    return best;
  }

  const std::vector<Sample>& products_;
  const Accelerator& device_;
  std::vector<std::string> types_;
};

/// Products of a vendor's library stand for what a framework runs; our own stand in only where there are none of that type.
std::vector<Sample> representative(const std::vector<Sample>& products) {
  const auto own = [](const Sample& sample) { return sample.kernel.rfind("gemm_", 0) == 0; };
  std::vector<Sample> kept;
  for (const Sample& sample : products) {
    const bool outdone = own(sample) && std::any_of(products.begin(), products.end(),
                                                    [&](const Sample& other) { return other.type == sample.type && !own(other); });
    if (!outdone) kept.push_back(sample);
  }
  return kept;
}

/// The best register rate of that type, or 0.
double matrix_rate(const std::vector<Sample>& samples, const std::string& type) {
  double best = 0;
  for (const Sample& sample : of_kind(samples, SampleKind::matrix_rate))
    if (sample.type == type) best = std::max(best, sample.flops / sample.fastest);
  return best;
}

bool has_rate(const Accelerator& device, const std::string& type) {
  return std::any_of(device.rates.begin(), device.rates.end(), [&](const ComputeRate& rate) { return name_of(rate.type) == type; });
}

/// Of products that do not determine more: what the fastest reached.
double best_rate(const std::vector<Sample>& products, const std::string& type) {
  double best = 0;
  for (const Sample& sample : products)
    if (sample.type == type) best = std::max(best, sample.flops / sample.seconds);
  return best;
}

/// A data sheet's peak stays, unless something faster was measured.
void set_rate(Accelerator& device, MathType type, double sustained, double on_registers) {
  auto found = std::find_if(device.rates.begin(), device.rates.end(), [&](const ComputeRate& rate) { return rate.type == type; });
  if (found == device.rates.end()) {
    device.rates.push_back({type, {}, {}});
    found = device.rates.end() - 1;
  }
  const double measured_peak = std::max(on_registers, sustained);
  if (found->peak.value.value < measured_peak) found->peak = {FlopsPerSecond(measured_peak), Provenance::measured, kSource};
  constexpr double kLeastShare = 1e-3;  // that a file holds
  found->sustained = calibrated(std::max(sustained / found->peak.value.value, kLeastShare));
}

/// Of products timed several times, by several tools, the fastest counts: it is what a library at its best does. Those of a model's step
/// were timed as the step runs them: their mean counts, and nothing else of that shape.
double representative_time(const std::vector<Sample>& several) {
  double sum = 0, fastest = HUGE_VAL;
  int in_step = 0;
  for (const Sample& sample : several) {
    fastest = std::min(fastest, sample.seconds);
    if (sample.reuse >= 0) sum += sample.seconds, ++in_step;
  }
  return in_step > 0 ? sum / in_step : fastest;
}

void keep_times(const std::vector<Sample>& products, Accelerator& device) {
  std::map<std::string, std::map<std::vector<std::int64_t>, std::vector<Sample>>> by_shape;
  for (const Sample& sample : products) by_shape[sample.type][{sample.m, sample.n, sample.k, sample.batch}].push_back(sample);
  device.gemm_times.clear();
  for (const auto& [type, shapes] : by_shape) {
    GemmTimes times{math_named(type), Provenance::measured, kSource, {}};
    for (const auto& [shape, several] : shapes)
      times.points.push_back({shape[0], shape[1], shape[2], shape[3], Seconds(representative_time(several))});
    device.gemm_times.push_back(std::move(times));
  }
}

// ---- attention -----------------------------------------------------------------------------------------------------

Sourced<double> attention_share(const std::vector<Sample>& samples, const Accelerator& device) {
  std::vector<double> shares;
  for (const Sample& sample : samples) {
    const double sustained = device.sustained(math_named(sample.type)).value;
    const double busy = std::max(sample.seconds - device.gemm.start.value.value, 0.1 * sample.seconds);
    shares.push_back(sample.flops / busy / sustained);
  }
  return calibrated(std::clamp(median(shares), 1e-3, 1.0));
}

}  // namespace

std::vector<Sample> of_kind(const std::vector<Sample>& samples, SampleKind kind) {
  std::vector<Sample> chosen;
  for (const Sample& sample : samples)
    if (sample.kind == kind) chosen.push_back(sample);
  return chosen;
}

MathType math_named(const std::string& name) {
  std::vector<std::string> names;
  for (int i = 0; i < 9; ++i) {
    names.emplace_back(name_of(static_cast<MathType>(i)));
    if (name == names.back()) return static_cast<MathType>(i);
  }
  fail("'" + name + "' is no arithmetic", "samples", suggest(name, names));
}

void fit_streaming(const std::vector<Sample>& samples, Calibration& calibration) {
  const std::vector<Sample> streams = of_kind(samples, SampleKind::stream);
  Accelerator& device = calibration.cluster.accelerator;
  fit_bandwidth(streams, device);
  std::map<std::string, std::vector<TimedSize>> groups, of_model;
  for (const Sample& sample : streams)
    (sample.reuse < 0 ? groups : of_model)[sample.group].push_back({static_cast<double>(sample.bytes), sample.seconds});
  for (const auto& [group, points] : of_model)
    if (groups.count(group) == 0) groups[group] = points;
  for (const auto& [group, points] : groups) {
    if (have_one_size(points)) {
      calibration.notes.push_back(group + " kernels: one size only, no line fitted");
      continue;
    }
    double largest = 0;
    for (const TimedSize& point : points) largest = std::max(largest, point.size);
    const StreamingCurve machine = curve_of(group, fit_kinked_line(points, kMostKinks), largest);
    const auto model = of_model.find(group);
    device.streaming.push_back(model == of_model.end() ? machine : curve_through(model->second, machine));
  }
}

void fit_gemm(const std::vector<Sample>& samples, Calibration& calibration) {
  const std::vector<Sample> products = representative(of_kind(samples, SampleKind::gemm));
  Accelerator& device = calibration.cluster.accelerator;
  for (const Sample& sample : of_kind(samples, SampleKind::matrix_rate)) math_named(sample.type);
  if (products.empty()) return;
  const GemmFitter fitter(products, device);
  const GemmFit fit = fitter.fit();
  if (fit.inverse_rates.empty()) {
    calibration.notes.push_back(
        fmt::format("matrix products: {} shapes do not determine the constants of {} types", products.size(), fitter.types().size()));
    for (const std::string& type : fitter.types())
      if (!has_rate(device, type)) set_rate(device, math_named(type), best_rate(products, type), matrix_rate(samples, type));
  } else {
    for (std::size_t i = 0; i < fitter.types().size(); ++i)
      set_rate(device, math_named(fitter.types()[i]), 1 / fit.inverse_rates[i], matrix_rate(samples, fitter.types()[i]));
    device.gemm.quantisation = calibrated(fit.quantisation);
    device.gemm.start = calibrated(Seconds(std::max(fit.start, 1e-9)));  // a file has no zero
    device.gemm.epilogue = calibrated(Seconds(std::max(fit.epilogue, 1e-9)));
  }
  keep_times(products, device);
}

void fit_attention(const std::vector<Sample>& samples, Calibration& calibration) {
  Accelerator& device = calibration.cluster.accelerator;
  const auto usable = [&](SampleKind kind) {
    std::vector<Sample> chosen = of_kind(samples, kind);
    chosen.erase(std::remove_if(chosen.begin(), chosen.end(), [&](const Sample& sample) { return !has_rate(device, sample.type); }),
                 chosen.end());
    return chosen;
  };
  if (const auto forward = usable(SampleKind::attention); !forward.empty()) device.attention.forward = attention_share(forward, device);
  if (const auto backward = usable(SampleKind::attention_backward); !backward.empty())
    device.attention.backward = attention_share(backward, device);
}

}  // namespace plimsoll::calibrate

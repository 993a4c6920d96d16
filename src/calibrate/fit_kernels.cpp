// Kernels bound by memory, as lines with kinks, and attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "calibrate/fit.hpp"
#include "calibrate/least_squares.hpp"
#include "calibrate/statistics.hpp"
#include "plimsoll/error.hpp"
#include "program/attention_pass.hpp"

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
    if (static_cast<double>(point.bytes.count) > list.back().size)
      list.push_back({static_cast<double>(point.bytes.count), point.time.value});
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
    if (sample.reuse < 0 && !sample.work) largest = std::max(largest, sample.bytes);
  const double passed = kCachesPassed * static_cast<double>(device.last_level_cache.value.count);
  std::vector<double> rates;
  for (const Sample& sample : streams)
    if (static_cast<double>(sample.bytes) >= std::min(passed, static_cast<double>(largest)) && sample.group == "elementwise" &&
        sample.reuse < 0 && !sample.work)
      rates.push_back(static_cast<double>(sample.bytes) / sample.seconds);
  if (rates.empty()) return;
  const double rate = median(rates);
  if (rate > device.memory_bandwidth.value.value) device.memory_bandwidth = {BytesPerSecond(rate), Provenance::measured, kSource};
  device.memory_efficiency = calibrated(rate / device.memory_bandwidth.value.value);
}

// ---- attention -----------------------------------------------------------------------------------------------------

/// Of a library's passes those say what share of the rate attention reaches that are long, with heads of 128.
bool is_short_pass(const Sample& sample) {
  constexpr std::int64_t kLong = 2048, kWidth = 128;
  return library_pass(sample) && (sample.k != kWidth || std::min(sample.m, sample.n) < kLong);
}

/// Timed by kernels of ours, not by a library's.
bool is_own(const Sample& sample) {
  return is_attention(sample) && sample.kernel.rfind("attention", 0) == 0;
}

/// The share of products' rate at which the laws say of a pass what it took: they take work / share + fixed seconds of it.
double share_by_laws(const Attention& pass, double seconds, Accelerator device) {
  constexpr double kHalf = 0.5, kQuarter = 0.25, kLeastBusy = 0.1;
  const auto priced_at = [&](double share) {
    device.attention.forward.value = device.attention.backward.value = share;
    return priced(pass, device);
  };
  const double half = priced_at(kHalf), work = (priced_at(kQuarter) - half) / (1 / kQuarter - 1 / kHalf), fixed = half - work / kHalf;
  return work / std::max(seconds - fixed, kLeastBusy * seconds);
}

/// A share that a file holds is at most the whole rate: where the samples ask for more, a note says so.
Sourced<double> attention_share(const std::vector<Sample>& samples, Calibration& calibration) {
  const Accelerator& device = calibration.cluster.accelerator;
  std::vector<double> shares;
  for (const Sample& sample : samples) {
    if (is_own(sample)) {
      shares.push_back(share_by_laws(*timed_pass(sample), sample.seconds, device));
      continue;
    }
    const double sustained = device.sustained(math_named(sample.type)).value;
    const double busy = std::max(sample.seconds - device.gemm.start.value.value, 0.1 * sample.seconds);
    shares.push_back(sample.flops / busy / sustained);
  }
  constexpr double kLeast = 1e-3, kMost = 1.0;
  const double share = median(shares);
  if (share < kLeast || share > kMost)
    calibration.notes.push_back(fmt::format("{}: {:.3g} of the rate of products is no share that a file holds, {:g} to {:g}",
                                            name_of(samples.front().kind), share, kLeast, kMost));
  return calibrated(std::clamp(share, kLeast, kMost));
}

}  // namespace

bool is_attention(const Sample& sample) {
  return sample.kind == SampleKind::attention || sample.kind == SampleKind::attention_backward;
}

std::optional<Attention> library_pass(const Sample& sample) {
  return is_own(sample) ? std::nullopt : timed_pass(sample);
}

std::optional<Attention> timed_pass(const Sample& sample) {
  const bool by_library = sample.kernel == name_of(AttentionLibrary::cudnn);
  if (!is_attention(sample) || sample.work || !(by_library || is_own(sample))) return {};
  Attention main;
  main.library = by_library ? AttentionLibrary::cudnn : AttentionLibrary::flash2;
  main.part = sample.kind == SampleKind::attention ? Attention::Part::forward : Attention::Part::backward;
  main.type = sample.type == name_of(DType::fp16) ? DType::fp16 : DType::bf16;
  main.causal = sample.causal;
  main.heads = sample.batch, main.kv_heads = sample.kv_batch > 0 ? sample.kv_batch : sample.batch;
  main.queries = sample.m, main.keys = sample.n;
  main.head_dim = main.value_dim = sample.k;
  return main;
}

double priced(const Attention& main, const Accelerator& device) {
  double seconds = 0;
  for (const Attention& kernel : kernels_of_pass(main)) seconds += price(kernel, device).value;
  return seconds;
}

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
    if (!sample.work) (sample.reuse < 0 ? groups : of_model)[sample.group].push_back({static_cast<double>(sample.bytes), sample.seconds});
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

void fit_attention(const std::vector<Sample>& samples, Calibration& calibration) {
  Accelerator& device = calibration.cluster.accelerator;
  const bool known = !calibration.base.empty();
  const auto by_library = [](const Sample& sample) { return library_pass(sample).has_value(); };
  const bool timed_library = std::any_of(samples.begin(), samples.end(), by_library);
  const auto usable = [&](SampleKind kind) {
    std::vector<Sample> chosen = of_kind(samples, kind);
    const auto says_nothing = [&](const Sample& sample) {
      return sample.work || !has_rate(sample, device) || ((known || timed_library) && is_own(sample)) || is_short_pass(sample);
    };
    chosen.erase(std::remove_if(chosen.begin(), chosen.end(), says_nothing), chosen.end());
    return chosen;
  };
  if (known && !timed_library && std::any_of(samples.begin(), samples.end(), is_own))
    calibration.notes.push_back("attention: our own kernels were timed, which no framework runs; the shares of " + calibration.base +
                                " stay");
  if (const auto forward = usable(SampleKind::attention); !forward.empty()) device.attention.forward = attention_share(forward, calibration);
  if (const auto backward = usable(SampleKind::attention_backward); !backward.empty())
    device.attention.backward = attention_share(backward, calibration);
}

}  // namespace plimsoll::calibrate

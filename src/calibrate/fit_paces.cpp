// How a device's kernels run against the laws of their classes (hardware/kernels.json), from the kernels of traced steps. The laws say what
// a kernel issues and moves; two numbers of the device, how fast it issues and how much of its bandwidth it reaches, price all classes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/fit.hpp"
#include "calibrate/statistics.hpp"

namespace plimsoll::calibrate {
namespace {

/// Shorter kernels are their launches.
constexpr double kShortest = 10e-6;
constexpr std::size_t kEnough = 8;
/// An odd kernel must not decide: errors count up to this.
constexpr double kOdd = 0.5;
constexpr double kLeastPace = 0.1, kMostPace = 10, kLeastShare = 0.2, kMostShare = 1.0;
constexpr int kTurns = 4;

std::vector<Sample> traced(const std::vector<Sample>& samples, SampleKind kind) {
  std::vector<Sample> chosen;
  for (const Sample& sample : samples)
    if (sample.kind == kind && sample.work && sample.seconds >= kShortest) chosen.push_back(sample);
  return chosen;
}

double error(const std::vector<Sample>& samples, const Accelerator& device) {
  double sum = 0;
  for (const Sample& sample : samples) sum += std::min(kOdd, std::abs(std::log(price(*sample.work, device).value / sample.seconds)));
  return sum;
}

/// The value between `from` and `to` where the error is least: a grid, then twice a finer one around its best.
template <class Set>
double least_error(double from, double to, const std::vector<Sample>& samples, Accelerator device, const Set& set) {
  constexpr int kSteps = 24;
  double best = from, least = HUGE_VAL;
  for (int pass = 0; pass < 3; ++pass) {
    const double ratio = std::pow(to / from, 1.0 / kSteps);
    for (int i = 0; i <= kSteps; ++i) {
      const double value = from * std::pow(ratio, i);
      set(device, value);
      if (const double found = error(samples, device); found < least) least = found, best = value;
    }
    from = std::max(from, best / ratio), to = std::min(to, best * ratio);
  }
  return best;
}

void fit_memory_bound(const std::vector<Sample>& samples, Calibration& calibration) {
  Accelerator& device = calibration.cluster.accelerator;
  if (samples.empty()) return;
  if (samples.size() < kEnough) {
    calibration.notes.push_back(fmt::format("kernels bound by memory: {} of 10 us and more are too few to fit", samples.size()));
    return;
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    const double share = least_error(kLeastShare, kMostShare, samples, device,
                                     [](Accelerator& each, double value) { each.memory_efficiency.value = value; });
    device.memory_efficiency = calibrated(share);
    const double pace =
        least_error(kLeastPace, kMostPace, samples, device, [](Accelerator& each, double value) { each.paces.issue.value = value; });
    device.paces.issue = calibrated(pace);
  }
}

/// What the main kernel of a library's pass took over what its law says; its helpers go by the device's bandwidth. A pass that its
/// helpers or its launches fill says nothing.
std::optional<double> pass_ratio(const Sample& sample, const Accelerator& device) {
  constexpr double kMostHelpers = 0.5;
  const std::optional<Attention> main = library_pass(sample);
  const double measured = boost_seconds(sample);
  if (!main || measured < kShortest) return {};
  const double law = price(*main, device).value, helpers = priced(*main, device) - law;
  if (helpers > kMostHelpers * measured) return {};
  return (measured - helpers) / law;
}

/// The median of what the kernels took over what their law says.
void fit_attention_pace(const std::vector<Sample>& samples, SampleKind kind, const Accelerator& device, Sourced<double>& pace) {
  std::vector<double> ratios;
  for (const Sample& sample : traced(samples, kind))
    ratios.push_back(sample.seconds / price(*sample.work, device, {sample.matrix_share}).value);
  for (const Sample& sample : of_kind(samples, kind))
    if (has_rate(sample, device))
      if (const std::optional<double> ratio = pass_ratio(sample, device)) ratios.push_back(*ratio);
  if (!ratios.empty()) pace = calibrated(pace.value * std::clamp(median(ratios), kLeastPace, kMostPace));
}

}  // namespace

void fit_paces(const std::vector<Sample>& samples, Calibration& calibration) {
  Accelerator& device = calibration.cluster.accelerator;
  fit_memory_bound(traced(samples, SampleKind::stream), calibration);
  fit_attention_pace(samples, SampleKind::attention, device, device.paces.attention_forward);
  fit_attention_pace(samples, SampleKind::attention_backward, device, device.paces.attention_backward);
}

}  // namespace plimsoll::calibrate

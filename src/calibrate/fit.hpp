// The parts of a fit. Each takes the samples of its kind, changes the constants of the machine that they determine, and leaves the rest.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/calibrate.hpp"
#include "plimsoll/cost.hpp"

namespace plimsoll::calibrate {

/// The key under which the file's sources name this measurement.
inline constexpr const char* kSource = "calibration";

template <class T>
Sourced<T> calibrated(T value) {
  return {value, Provenance::calibrated, kSource};
}

/// The samples of one kind, in order.
std::vector<Sample> of_kind(const std::vector<Sample>& samples, SampleKind kind);

/// Whether a sample is of attention, forward or backward.
bool is_attention(const Sample& sample);

/// At the boost clock, of which the constants of products and attention are, and from which the limit of a board's power takes
/// (product_cost.hpp): the fastest of a kernel that ran alone on a board whose power was read. In a row products draw all of it and fall
/// to a clock that few steps see. In a step the time is the step's.
double boost_seconds(const Sample& sample);

/// The arithmetic of that name. Throws Error with the nearest.
MathType math_named(const std::string& name);

/// Streaming bandwidth, and per kind of memory-bound kernels the start and the lines with their kinks.
void fit_streaming(const std::vector<Sample>& samples, Calibration& calibration);
/// Constants of the kernels that multiplied the samples, jointly over all types; products timed one by one go into gemm_times.
void fit_gemm(const std::vector<Sample>& samples, Calibration& calibration);
/// The products that the fit is held against: a library's, each shape once, and none that the host's calls bound.
std::vector<Sample> fitted_products(const std::vector<Sample>& samples, const Accelerator& device);
/// The same fit five times, each without a fifth of the products, on those that it has not seen.
std::vector<FitResidual> left_out_products(const std::vector<Sample>& samples, const Calibration& calibration);
/// Whether the device says how fast it does the arithmetic of a sample.
bool has_rate(const Sample& sample, const Accelerator& device);
/// The product that a sample timed.
Product product_of(const Sample& sample);
/// The main kernel of a pass that a library ran ("cudnn"), as it is priced; of our own kernels and of traces there is none.
std::optional<Attention> library_pass(const Sample& sample);
/// The same also of our own kernels, which stand for FlashAttention-2's; of traces there is none.
std::optional<Attention> timed_pass(const Sample& sample);
/// What the laws say of it with its helpers.
double priced(const Attention& main, const Accelerator& device);
/// Shares of the sustained rate that fused attention reaches.
void fit_attention(const std::vector<Sample>& samples, Calibration& calibration);
/// How this device's kernels run against the laws of their classes, from those of traced steps: streaming bandwidth, issue, attention.
void fit_paces(const std::vector<Sample>& samples, Calibration& calibration);
/// Links between host and device, and between devices.
void fit_copies(const std::vector<Sample>& samples, Calibration& calibration);
/// Protocols of the collectives in a node, and measured curves of all-reduce.
void fit_collectives(const std::vector<Sample>& samples, Calibration& calibration);

/// Quantiles of |predicted / measured − 1| by what was predicted.
std::vector<FitResidual> residuals_of(const std::map<std::string, std::vector<double>>& errors);
/// Predicts every sample with the fitted constants.
std::vector<FitResidual> fit_residuals(const std::vector<Sample>& samples, const Cluster& cluster);

}  // namespace plimsoll::calibrate

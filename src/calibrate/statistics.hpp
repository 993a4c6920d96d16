// Robust statistics of timings: a median and its dispersion say what a mean does not.
#pragma once

#include <vector>

namespace plimsoll::calibrate {

/// The value below which that share of the values lies (nearest rank, linear between neighbours); values must not be empty.
double quantile(std::vector<double> values, double share);
inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }
/// 1.4826 times the median distance from the median: the standard deviation of normal noise, untouched by outliers.
double median_deviation(const std::vector<double>& values);

}  // namespace plimsoll::calibrate

// Non-negative least squares and straight lines with kinks: constants of a machine (times, inverse rates) are never below zero.
#pragma once

#include <cstddef>
#include <vector>

namespace plimsoll::calibrate {

/// One equation: the sum of coefficient · unknown is `value`, known to about `value` · something (errors of timings are relative).
struct Equation {
  std::vector<double> coefficients;
  double value;
};

/// Unknowns ≥ 0 that minimise the sum of (predicted / value − 1)² (Lawson and Hanson 1974, chapter 23). Equations far off the others
/// (Tukey's biweight, 4.685 robust deviations) lose their weight. Throws Error when there are fewer equations than unknowns.
std::vector<double> fit_nonnegative(const std::vector<Equation>& equations);

/// Root mean square of predicted / value − 1.
double relative_error(const std::vector<Equation>& equations, const std::vector<double>& unknowns);

struct TimedSize {
  double size, seconds;
};

/// time(0) = start; from one knot to the next a straight line that never falls; the last line goes on.
struct KinkedLine {
  double start = 0;
  std::vector<double> knots;   ///< sizes at which the slope changes, rising
  std::vector<double> slopes;  ///< seconds per unit of size, one more than knots
  double error = 0;            ///< root mean square, relative

  double at(double size) const;
};

/// The best line with as many kinks, at most `most_kinks`, as the points pay for (Bayesian information criterion). Throws Error for
/// fewer than two sizes.
KinkedLine fit_kinked_line(const std::vector<TimedSize>& points, std::size_t most_kinks);

}  // namespace plimsoll::calibrate

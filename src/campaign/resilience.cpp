// Checkpoints against failures: Young 1974 (A first order approximation to the optimum checkpoint interval), Daly 2006 (A higher order
// estimate of the optimum checkpoint interval for restart dumps).
#include <algorithm>
#include <cmath>

#include "plimsoll/campaign.hpp"

namespace plimsoll {

Seconds young_interval(Seconds write, Seconds between_failures) { return Seconds(std::sqrt(2 * write.value * between_failures.value)); }

Seconds daly_interval(Seconds write, Seconds between_failures) {
  const double d = write.value, m = between_failures.value;
  if (d >= 2 * m) return between_failures;
  return Seconds(std::sqrt(2 * d * m) * (1 + std::sqrt(d / (2 * m)) / 3 + d / (2 * m) / 9) - d);
}

double goodput(Seconds interval, Seconds write, Seconds restart, Seconds between_failures) {
  const double m = between_failures.value;
  const double expected = m * std::exp(restart.value / m) * std::expm1((interval.value + write.value) / m);
  return expected > 0 ? std::min(1.0, interval.value / expected) : 1;
}

}  // namespace plimsoll

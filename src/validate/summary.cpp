#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "validate/compare.hpp"

namespace plimsoll::validation {

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

namespace {

using Key = std::pair<std::string, std::string>;  // source, quantity

struct Errors {
  std::vector<double> all;
  std::size_t closed_form = 0, banded = 0, inside = 0;
};

QuantitySummary summary_of(const Key& key, Errors of_key) {
  std::vector<double>& errors = of_key.all;
  QuantitySummary summary{key.first, key.second, errors.size(), 0, 0, 0, of_key.closed_form, of_key.banded, of_key.inside};
  std::sort(errors.begin(), errors.end());
  summary.bias = quantile(errors, 0.5);
  for (double& error : errors) error = std::fabs(error);
  std::sort(errors.begin(), errors.end());
  summary.median = quantile(errors, 0.5);
  summary.ninetieth = quantile(errors, 0.9);
  return summary;
}

void count_verdict(FitsSummary& fits, const Comparison& row) {
  const bool ran = row.measured != 0, predicted = row.predicted != 0;
  std::size_t& cell = ran ? (predicted ? fits.fits_right : fits.fits_wrong) : (predicted ? fits.oom_wrong : fits.oom_right);
  ++cell;
}

}  // namespace

void summarise(Validation& validation) {
  std::map<Key, Errors> errors;
  std::map<std::string, FitsSummary> fits;
  for (const Comparison& row : validation.rows) {
    if (row.quantity == quantity::fits) {
      fits[row.source].source = row.source;
      count_verdict(fits[row.source], row);
    } else if (!row.lower_bound) {
      Errors& of_key = errors[{row.source, row.quantity}];
      of_key.all.push_back(row.error);
      if ((is_memory(row.quantity) || is_time(row.quantity)) && row.basis != Basis::played) ++of_key.closed_form;
      if (row.banded()) ++of_key.banded, of_key.inside += row.inside() ? 1 : 0;
    }
  }
  for (auto& [key, of_key] : errors) validation.quantities.push_back(summary_of(key, std::move(of_key)));
  for (auto& [source, each] : fits) validation.fits.push_back(each);
  std::stable_sort(validation.rows.begin(), validation.rows.end(),
                   [](const Comparison& a, const Comparison& b) { return std::fabs(a.error) > std::fabs(b.error); });
}

}  // namespace plimsoll::validation

// One row against its prediction.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/validate.hpp"

namespace plimsoll::validation {

/// The comparisons of one row, and why it is refused (empty: it is not).
struct RowResult {
  std::vector<Comparison> comparisons;
  std::string refused;
};

RowResult compare_row(const std::string& source, const MeasuredRow& row, const Predictor& predictor);

/// Parameters that PEFT adds: r · (in + out) for each targeted linear, DoRA's `out` magnitudes, and copies of modules_to_save.
std::int64_t adapter_parameters(const Model& model, const Lora& lora);

/// Whether the quantity is bytes of a played step or of the closed form that stands in for it.
bool is_memory(const std::string& quantity);
bool is_time(const std::string& quantity);

/// Median and 90th percentile of the errors, per source and quantity; verdicts; shares.
void summarise(Validation& validation);

/// The q-quantile of sorted values, linear between neighbours.
double quantile(const std::vector<double>& sorted, double q);

}  // namespace plimsoll::validation

#include "estimate/residuals.hpp"

#include <string>
#include <vector>

#include "hardware/read_values.hpp"

namespace plimsoll::estimation {
namespace {

/// Percentiles of predicted / measured − 1.
struct Residual {
  std::string quantity, framework, basis;
  double fifth = 0, ninety_fifth = 0;
};

std::vector<Residual> read_residuals() {
  const JsonDocument document = hardware::shipped_document("hardware/residuals.json");
  std::vector<Residual> residuals;
  for (const JsonValue& row : document.root()["residuals"].elements()) {
    residuals.push_back({row["quantity"].text(), row["framework"].text(), row["basis"].text(), row["p5"].number(-0.999, 1000),
                         row["p95"].number(-0.999, 1000)});
  }
  return residuals;
}

const std::vector<Residual>& shipped_residuals() {
  static const std::vector<Residual> residuals = read_residuals();
  return residuals;
}

const Residual* residual_of(std::string_view quantity, std::string_view framework, std::string_view basis) {
  for (const Residual& each : shipped_residuals())
    if (each.quantity == quantity && each.framework == framework && each.basis == basis) return &each;
  return nullptr;
}

}  // namespace

Band band_of(std::string_view quantity, std::string_view framework, Basis basis, double expected) {
  const Residual* residual = residual_of(quantity, framework, name_of(basis));
  if (!residual) residual = residual_of(quantity, "all", name_of(basis));
  if (!residual) return Band::exactly(expected);
  // predicted = measured · (1 + e): a prediction that is usually too low (e < 0) has its band above it.
  const double low = expected / (1 + residual->ninety_fifth), high = expected / (1 + residual->fifth);
  return {low < expected ? low : expected, expected, high > expected ? high : expected};
}

}  // namespace plimsoll::estimation

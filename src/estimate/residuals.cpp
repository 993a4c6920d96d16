#include "estimate/residuals.hpp"

#include <cmath>
#include <map>
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

struct Residuals {
  std::vector<Residual> spreads;
  std::map<std::string, double, std::less<>> differences;  ///< by framework: logarithms of ratios
};

Residuals read_residuals() {
  const JsonDocument document = hardware::shipped_document("hardware/residuals.json");
  Residuals residuals;
  for (const JsonValue& row : document.root()["residuals"].elements()) {
    residuals.spreads.push_back({row["quantity"].text(), row["framework"].text(), row["basis"].text(), row["p5"].number(-0.999, 1000),
                                 row["p95"].number(-0.999, 1000)});
  }
  for (const JsonValue& row : document.root()["differences"].elements())
    residuals.differences[row["framework"].text()] = row["p90"].number(0, 10);
  return residuals;
}

const Residuals& shipped_residuals() {
  static const Residuals residuals = read_residuals();
  return residuals;
}

constexpr double kUnmeasured = 2;

const Residual* residual_of(std::string_view quantity, std::string_view framework, std::string_view basis) {
  for (const Residual& each : shipped_residuals().spreads)
    if (each.quantity == quantity && each.framework == framework && each.basis == basis) return &each;
  return nullptr;
}

}  // namespace

Band band_of(std::string_view quantity, std::string_view framework, Basis basis, double expected) {
  const Residual* residual = residual_of(quantity, framework, name_of(basis));
  if (!residual) residual = residual_of(quantity, "all", name_of(basis));
  // Nobody held such a prediction against a run: twice what played ones miss by.
  const double factor = residual ? 1 : kUnmeasured;
  if (!residual) residual = residual_of(quantity, "all", name_of(Basis::played));
  if (!residual) return Band::exactly(expected);
  // predicted = measured · (1 + e): a prediction that is usually too low (e < 0) has its band above it.
  const double low = expected / (1 + factor * residual->ninety_fifth), high = expected / (1 + factor * residual->fifth);
  return {low < expected ? low : expected, expected, high > expected ? high : expected};
}

double decisive_difference(std::string_view framework) {
  const auto& differences = shipped_residuals().differences;
  auto found = differences.find(framework);
  if (found == differences.end()) found = differences.find("all");
  return found == differences.end() ? 0 : std::expm1(found->second);
}

}  // namespace plimsoll::estimation

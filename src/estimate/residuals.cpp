#include "estimate/residuals.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "hardware/read_values.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll::estimation {
namespace {

/// Between `low` and `high` lie nine in ten of predicted / measured − 1.
struct Residual {
  std::string quantity;
  RunKind when;  ///< words of the kinds that it is of; empty: all
  double low = 0, high = 0;
};

struct Residuals {
  std::vector<Residual> spreads;  ///< the narrowest kinds first
  std::map<std::string, double, std::less<>> differences;  ///< by framework: logarithms of ratios
};

Residuals read_residuals() {
  const JsonDocument document = hardware::shipped_document("hardware/residuals.json");
  Residuals residuals;
  for (const JsonValue& row : document.root()["residuals"].elements()) {
    Residual& read = residuals.spreads.emplace_back();
    read.quantity = row["quantity"].text();
    for (const std::string& word : row["when"].keys()) read.when[word] = row["when"][word].text();
    read.low = row["low"].number(-0.999, 0);
    read.high = row["high"].number(0, 1000);
  }
  for (const JsonValue& row : document.root()["differences"].elements())
    residuals.differences[row["framework"].text()] = row["p90"].number(0, 10);
  return residuals;
}

const Residuals& shipped_residuals() {
  static const Residuals residuals = read_residuals();
  return residuals;
}

bool applies(const Residual& residual, std::string_view quantity, const RunKind& kind) {
  return residual.quantity == quantity && std::all_of(residual.when.begin(), residual.when.end(), [&](const auto& word) {
           const auto found = kind.find(word.first);
           return found != kind.end() && found->second == word.second;
         });
}

const char* arithmetic_of(const Strategy& s) {
  switch (s.low_precision) {
    case LowPrecision::fp8:
    case LowPrecision::mxfp8:
      return "8 bits";
    case LowPrecision::nvfp4:
      return "4 bits";
    case LowPrecision::none:
      break;
  }
  return s.compute_dtype.value_or(DType::bf16) == DType::fp32 ? "32 bits" : "16 bits";
}

/// Whether the run's PyTorch is of a time whose frameworks' rules were read line by line; of older ones the names of releases tell less than what
/// ran. A framework without PyTorch is of today.
bool is_of_today(const Strategy& s) {
  const Releases::Entry* torch = s.releases.find(Package::torch);
  return torch == nullptr || torch->release.since(2, 4);
}

}  // namespace

RunKind memory_kind(const Model& model, const Cluster& cluster, const Strategy& resolved, Basis basis) {
  const bool timed = cluster.accelerator.gemm.start.provenance == Provenance::calibrated;
  return {{"framework", std::string(name_of(profile_of(resolved).code))},
          {"place", cluster.nodes > 1 ? "many nodes" : resolved.gpus > 1 ? "one node" : "one device"},
          {"network", model.has_experts() ? "mixture" : "dense"},
          {"device", timed ? "measured" : "published"},
          {"arithmetic", arithmetic_of(resolved)},
          {"software", is_of_today(resolved) ? "of today" : "older"},
          {"training", resolved.lora || resolved.peft ? "adapters" : "whole"},
          {"basis", std::string(name_of(basis))}};
}

RunKind time_kind(const Model& model, const Cluster& cluster, const Strategy& resolved, Basis basis, double host) {
  constexpr double kWaitedFor = 0.05;
  RunKind kind = memory_kind(model, cluster, resolved, basis);
  if (basis == Basis::played) kind["host"] = host > kWaitedFor ? "waited for" : "ahead";
  return kind;
}

Band band_of(std::string_view quantity, const RunKind& kind, double expected) {
  for (const Residual& residual : shipped_residuals().spreads) {
    if (!applies(residual, quantity, kind)) continue;
    // predicted = measured · (1 + e): a prediction that is usually too low (e < 0) has its band above it.
    return {expected / (1 + residual.high), expected, expected / (1 + residual.low)};
  }
  return Band::exactly(expected);
}

double decisive_difference(std::string_view framework) {
  const auto& differences = shipped_residuals().differences;
  auto found = differences.find(framework);
  if (found == differences.end()) found = differences.find("all");
  return found == differences.end() ? 0 : std::expm1(found->second);
}

}  // namespace plimsoll::estimation

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "plimsoll/rows.hpp"
#include "validate/compare.hpp"

namespace plimsoll {
namespace {

using Kind = std::tuple<std::string, std::string, std::string>;  // quantity, basis, framework
constexpr std::size_t kFewest = 5;                               // rows that tell a spread

struct Spread {
  Kind kind;
  std::size_t rows = 0;
  double fifth = 0, ninety_fifth = 0;
};

Spread spread_of(const Kind& kind, std::vector<double> errors) {
  std::sort(errors.begin(), errors.end());
  return {kind, errors.size(), validation::quantile(errors, 0.05), validation::quantile(errors, 0.95)};
}

/// The framework in the middle: for frameworks without runs of their own, however many runs of one were published.
Spread middle_of(const std::string& quantity, const std::string& basis, const std::vector<Spread>& frameworks) {
  Spread middle{{quantity, basis, "all"}};
  std::vector<double> low, high;
  for (const Spread& each : frameworks) {
    if (std::get<0>(each.kind) != quantity || std::get<1>(each.kind) != basis) continue;
    middle.rows += each.rows;
    low.push_back(each.fifth);
    high.push_back(each.ninety_fifth);
  }
  std::sort(low.begin(), low.end());
  std::sort(high.begin(), high.end());
  middle.fifth = validation::quantile(low, 0.5);
  middle.ninety_fifth = validation::quantile(high, 0.5);
  return middle;
}

std::string row_of(const Spread& spread) {
  return fmt::format(R"(    {{"quantity": "{}", "framework": "{}", "basis": "{}", "rows": {}, "p5": {:.4f}, "p95": {:.4f}}})",
                     std::get<0>(spread.kind), std::get<2>(spread.kind), std::get<1>(spread.kind), spread.rows, spread.fifth,
                     spread.ninety_fifth);
}

/// By framework, then for all others.
std::vector<Spread> spreads_of(const Validation& v) {
  std::map<Kind, std::vector<double>> errors;
  for (const Comparison& row : v.rows) {
    if (row.lower_bound || (row.quantity != quantity::reserved && row.quantity != quantity::step_seconds)) continue;
    errors[{row.quantity, std::string(name_of(row.basis)), row.framework}].push_back(row.error);
  }
  std::vector<Spread> spreads;
  for (const auto& [kind, list] : errors)
    if (list.size() >= kFewest) spreads.push_back(spread_of(kind, list));
  std::vector<Spread> all;
  for (const char* quantity : {quantity::reserved, quantity::step_seconds}) {
    for (const Basis basis : {Basis::played, Basis::closed_form}) {
      Spread middle = middle_of(quantity, std::string(name_of(basis)), spreads);
      if (middle.rows > 0) all.push_back(std::move(middle));
    }
  }
  spreads.insert(spreads.end(), all.begin(), all.end());
  return spreads;
}

}  // namespace

std::string residuals_json(const Validation& v) {
  std::string rows;
  for (const Spread& spread : spreads_of(v)) rows += (rows.empty() ? "\n" : ",\n") + row_of(spread);
  return "{\n  \"schema\": \"plimsoll/residuals/1\",\n"
         "  \"note\": \"predicted / measured - 1 over published runs: the 5th and 95th percentile by framework and by how the prediction "
         "was "
         "reached; docs/validate.md says how it is made\",\n  \"residuals\": [" +
         rows + "\n  ]\n}\n";
}

}  // namespace plimsoll

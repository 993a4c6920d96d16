#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

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

// ---- the difference between two plans --------------------------------------------------------------------------------
// Two runs of one model on one cluster err alike: what a search asks is how far their difference errs, not each of them.

/// Predicted as far apart as what a search compares; beyond that nobody asks which is the faster.
constexpr double kNear = 0.2;
constexpr std::size_t kFewestPairs = 20;

/// By how much a pair's predicted difference was larger than the measured one, both as logarithms, and its weight: every run counts once.
struct Pair {
  double overstated, weight;
};

/// What one in ten pairs overstates by, at least.
struct Difference {
  std::string framework;
  std::size_t pairs = 0;
  double ninetieth = 0;
};

void add_pairs(const std::vector<const Comparison*>& runs, std::vector<Pair>& pairs) {
  const double weight = 2.0 / static_cast<double>(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (std::size_t j = i + 1; j < runs.size(); ++j) {
      const double predicted = std::log(runs[j]->predicted / runs[i]->predicted),
                   measured = std::log(runs[j]->measured / runs[i]->measured);
      if (std::abs(predicted) < kNear) pairs.push_back({predicted < 0 ? measured - predicted : predicted - measured, weight});
    }
}

double ninetieth_of(std::vector<Pair> pairs) {
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) { return a.overstated < b.overstated; });
  double all = 0, below = 0;
  for (const Pair& pair : pairs) all += pair.weight;
  for (const Pair& pair : pairs)
    if ((below += pair.weight) >= 0.9 * all) return std::max(0.0, pair.overstated);
  return 0;
}

/// By framework, then the one in the middle for all others.
std::vector<Difference> differences_of(const Validation& v) {
  std::map<std::pair<std::string, std::string>, std::vector<const Comparison*>> groups;  // by framework and question
  for (const Comparison& row : v.rows)
    if (!row.question.empty() && row.basis == Basis::played && !row.lower_bound && row.predicted > 0 && row.measured > 0)
      groups[{row.framework, row.question}].push_back(&row);
  std::map<std::string, std::vector<Pair>> pairs;
  for (const auto& [key, runs] : groups) add_pairs(runs, pairs[key.first]);
  std::vector<Difference> differences;
  std::vector<double> each;
  std::size_t all = 0;
  for (const auto& [framework, list] : pairs) {
    if (list.size() < kFewestPairs) continue;
    differences.push_back({framework, list.size(), ninetieth_of(list)});
    each.push_back(differences.back().ninetieth);
    all += list.size();
  }
  std::sort(each.begin(), each.end());
  if (!each.empty()) differences.push_back({"all", all, validation::quantile(each, 0.5)});
  return differences;
}

std::string row_of(const Difference& difference) {
  return fmt::format(R"(    {{"framework": "{}", "pairs": {}, "p90": {:.4f}}})", difference.framework, difference.pairs,
                     difference.ninetieth);
}

template <class Row>
std::string rows_of(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) text += (text.empty() ? "\n" : ",\n") + row_of(row);
  return text;
}

}  // namespace

std::string residuals_json(const Validation& v) {
  return "{\n  \"schema\": \"plimsoll/residuals/1\",\n"
         "  \"note\": \"predicted / measured - 1 over published runs: the 5th and 95th percentile by framework and by how the prediction "
         "was "
         "reached; docs/validate.md says how it is made\",\n  \"residuals\": [" +
         rows_of(spreads_of(v)) +
         "\n  ],\n  \"note_on_differences\": \"of two runs that differ in their strategy alone and are predicted less than 22 % apart: by "
         "how much the "
         "predicted logarithm of their ratio overstates the measured one, 90th percentile\",\n  \"differences\": [" +
         rows_of(differences_of(v)) + "\n  ]\n}\n";
}

}  // namespace plimsoll

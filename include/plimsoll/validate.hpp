/// Predictions held against measured runs: every row is predicted or refused by reason.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/rows.hpp"

namespace plimsoll {

/// The rows of one source (a file).
struct RowSet {
  std::string source;
  std::vector<MeasuredRow> rows;
};

/// One measured quantity and its prediction.
struct Comparison {
  std::string source, id, quantity;
  double predicted = 0, measured = 0;
  double low = 0, high = 0;          ///< the prediction's band; alike where none is known
  double error = 0;                  ///< predicted / measured − 1; of `fits`: predicted − measured
  bool lower_bound = false;          ///< the measured value is a lower bound: no part of the summary
  std::map<std::string, std::string> kind;  ///< of memory and time: the words of the run's kind (docs/validate.md), whose band it has
  Basis basis = Basis::closed_form;  ///< how the prediction was reached
  std::string closed_form_because;   ///< of a time that was not played
  std::string question;              ///< of a step: alike for runs that differ in their strategy alone

  bool banded() const { return low != high; }
  bool inside() const { return low <= measured && measured <= high; }
};

struct RefusedRow {
  std::string source, id, reason;
};

/// Errors of one quantity of one source.
struct QuantitySummary {
  std::string source, quantity;
  std::size_t rows = 0;
  double median = 0;            ///< of |error|
  double ninetieth = 0;         ///< 90th percentile of |error|
  double bias = 0;              ///< median of the signed error
  std::size_t closed_form = 0;  ///< rows of memory or time whose step was not played: a closed form stands in
  std::size_t banded = 0;       ///< rows whose prediction has a band
  std::size_t inside = 0;       ///< of those the measured ones that lie in it
};

/// Verdicts of one source against what happened.
struct FitsSummary {
  std::string source;
  std::size_t fits_right = 0;  ///< ran, predicted to fit
  std::size_t fits_wrong = 0;  ///< ran, predicted not to
  std::size_t oom_right = 0;   ///< ran out of memory, predicted so
  std::size_t oom_wrong = 0;   ///< ran out of memory, predicted to fit: the dangerous one

  std::size_t rows() const { return fits_right + fits_wrong + oom_right + oom_wrong; }
  double right() const { return rows() == 0 ? 0 : static_cast<double>(fits_right + oom_right) / static_cast<double>(rows()); }
  /// Share of the runs that did run out of memory.
  double false_fits() const {
    const std::size_t oom = oom_right + oom_wrong;
    return oom == 0 ? 0 : static_cast<double>(oom_wrong) / static_cast<double>(oom);
  }
};

struct SourceSummary {
  std::string source;
  std::size_t rows = 0, predicted = 0;  ///< predicted: at least one quantity
};

/// A key that nothing read, and in how many rows.
struct UnreadKey {
  std::string key;
  std::size_t rows = 0;
};

struct Validation {
  std::vector<Comparison> rows;     ///< worst first: by |error|, then source and id
  std::vector<RefusedRow> refused;  ///< in the order of the rows
  std::vector<SourceSummary> sources;
  std::vector<QuantitySummary> quantities;
  std::vector<FitsSummary> fits;
  std::vector<UnreadKey> unread_keys;
};

/// What stands for `estimate`; called from several threads at once.
using Predictor = std::function<Report(const Model&, const Cluster&, const Strategy&)>;

/// Predicts every row. An Error, or anything else that a prediction throws, refuses that row and stops no other.
Validation validate(const std::vector<RowSet>& sets, const Predictor& predictor);
/// With `estimate` as the predictor.
Validation validate(const std::vector<RowSet>& sets);

/// Worst rows first (`most` of them; 0: all), then the summary per source.
std::string validation_text(const Validation& validation, std::size_t most = 0);
/// The object of schema "plimsoll/validation/1" (docs/rows.md).
std::string validation_json(const Validation& validation);

}  // namespace plimsoll

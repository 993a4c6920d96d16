#include "plimsoll/validate.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "units/threads.hpp"
#include "validate/compare.hpp"

namespace plimsoll {
namespace {

struct Job {
  const RowSet* set;
  const MeasuredRow* row;
};

/// Runs all jobs on the machine's cores; the results keep the order of the rows.
std::vector<validation::RowResult> run_all(const std::vector<Job>& jobs, const Predictor& predictor) {
  std::vector<validation::RowResult> results(jobs.size());
  on_threads(jobs.size(), machine_threads(), [&](std::uint64_t i, int) {
    results[i] = validation::compare_row(jobs[i].set->source, *jobs[i].row, predictor);
    return true;
  });
  return results;
}

std::vector<UnreadKey> count_unread(const std::vector<Job>& jobs) {
  std::map<std::string, std::size_t> rows;
  for (const Job& job : jobs)
    for (const auto& key : std::set<std::string>(job.row->unread_keys.begin(), job.row->unread_keys.end())) ++rows[key];
  std::vector<UnreadKey> list;
  for (const auto& [key, count] : rows) list.push_back({key, count});
  return list;
}

}  // namespace

Validation validate(const std::vector<RowSet>& sets, const Predictor& predictor) {
  std::vector<Job> jobs;
  for (const RowSet& set : sets)
    for (const MeasuredRow& row : set.rows) jobs.push_back({&set, &row});
  const auto results = run_all(jobs, predictor);

  Validation validation;
  std::size_t at = 0;
  for (const RowSet& set : sets) {
    SourceSummary source{set.source, set.rows.size(), 0};
    for (std::size_t i = 0; i < set.rows.size(); ++i, ++at) {
      const auto& result = results[at];
      if (!result.comparisons.empty()) ++source.predicted;
      validation.rows.insert(validation.rows.end(), result.comparisons.begin(), result.comparisons.end());
      if (!result.refused.empty()) validation.refused.push_back({set.source, set.rows[i].id, result.refused});
    }
    validation.sources.push_back(source);
  }
  validation.unread_keys = count_unread(jobs);
  validation::summarise(validation);
  return validation;
}

}  // namespace plimsoll

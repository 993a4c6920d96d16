// A search as a document: for a page, a comment, or a spreadsheet.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plimsoll/document.hpp"
#include "plimsoll/search.hpp"
#include "report/answer.hpp"
#include "report/document_parts.hpp"
#include "search/comparison.hpp"
#include "search/search_words.hpp"
#include "strategy/flags.hpp"

namespace plimsoll {
namespace {

using namespace searching;
using Json = nlohmann::ordered_json;

/// Plans, each with what it loses to the first of them.
Table plans_table(const std::string& title, const std::vector<EstimatedPlan>& plans, bool free_batch) {
  Table table{title, {}, {}};
  if (free_batch) table.columns.push_back({"tokens/s", "tokens_per_second"});
  const std::string cost = free_batch ? "GPU-seconds a million tokens" : "GPU-seconds";
  for (const Column& column : {Column{"step", "seconds"}, Column{"GPUs", "gpus"}, Column{"memory left", "left_bytes"}, Column{"verdict", "verdict"},
                               Column{cost, "gpu_seconds"}, Column{"loses to the first", "losses"}, Column{"command", "command"}})
    table.columns.push_back(column);
  for (const EstimatedPlan& plan : plans) {
    const double spent = cost_of(plan, free_batch);
    std::vector<Cell> row;
    if (free_batch) row.push_back(count_cell(static_cast<std::int64_t>(plan.tokens_per_second())));
    row.insert(row.end(), {seconds_cell(Seconds(plan.seconds())), count_cell(plan.plan.gpus), bytes_cell(plan.headroom()),
                           text_cell(spoken_verdict(plan.report.verdict)), Cell{fmt::format("{:.4g}", spent), fmt::format("{:.6g}", spent)},
                           text_cell(losses_in_words(plan, plans.front())), text_cell(plan.command)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table rejected_table(const SearchResult& result) {
  Table table{"rejected", {{"plans", "plans"}, {"reason", "reason"}, {"for example", "example"}, {"rescue", "rescue"}}, {}};
  for (const auto& [reason, rejection] : rejections_by_count(result))
    table.rows.push_back({count_cell(static_cast<std::int64_t>(rejection->count)), text_cell(reason), text_cell(rejection->example),
                          text_cell(rejection->rescue)});
  return table;
}

/// What the chart shows (src/report/page/front.js).
Json view_of_front(const SearchResult& result) {
  Json plans = Json::array();
  for (const EstimatedPlan& plan : result.front)
    plans.push_back({{"seconds", result.free_batch ? 1e6 * plan.seconds_per_token() : plan.seconds()},
                     {"left_bytes", plan.headroom().count},
                     {"gpus", plan.plan.gpus},
                     {"verdict", name_of(plan.report.verdict)},
                     {"flags", as_flags(plan.plan.options)}});
  return {{"time", result.free_batch ? "a million tokens" : "a step"}, {"plans", std::move(plans)}};
}

}  // namespace

Document document_of(const SearchResult& result) {
  Document document;
  document.title = result.model + " on " + result.cluster;
  document.answer = answer_of(result);
  document.setting = effort_of(result);
  document.verdict = result.best.empty() ? "does not fit" : spoken_verdict(result.best.front().report.verdict);
  document.tables = {plans_table("the best", result.best, result.free_batch),
                     plans_table("no plan is better than one of these in time, memory left, GPUs and cost together", result.front, result.free_batch),
                     rejected_table(result)};
  if (!result.notes.empty()) document.listings.push_back({"notes", result.notes});
  document.text = to_text(result);
  if (!result.front.empty()) document.views = Json{{"front", view_of_front(result)}}.dump();
  return document;
}

}  // namespace plimsoll

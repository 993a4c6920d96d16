// What the reports of runs that were watched, or measured, consist of.
#include <fmt/core.h>

#include "plimsoll/document.hpp"
#include "plimsoll/rehearse.hpp"
#include "plimsoll/report.hpp"
#include "plimsoll/validate.hpp"
#include "report/document_parts.hpp"

namespace plimsoll {
namespace {

Cell number_cell(const std::string& quantity, double value) {
  const bool bytes = quantity.size() > 6 && quantity.compare(quantity.size() - 6, 6, "_bytes") == 0;
  return {bytes ? fmt::format("{:.3f} GiB", value / 1073741824.0) : fmt::format("{:.5g}", value), fmt::format("{}", value)};
}

Table launches_table(const std::vector<KernelTime>& kernels) {
  Table table{"launches by time", {{"kernel", "kernel"}, {"calls", "calls"}, {"time", "seconds"}, {"FLOPs", "flops"}}, {}};
  for (const KernelTime& each : kernels)
    table.rows.push_back({text_cell(each.name), count_cell(each.calls), seconds_cell(each.seconds),
                          {fmt::format("{:.3e}", each.flops), fmt::format("{:.0f}", each.flops)}});
  return table;
}

Table rows_table(const Validation& validation) {
  Table table{"rows, worst first",
              {{"error", "error"},
               {"quantity", "quantity"},
               {"predicted", "predicted"},
               {"low", "low"},
               {"high", "high"},
               {"measured", "measured"},
               {"row", "id"},
               {"source", "source"}},
              {}};
  for (const Comparison& row : validation.rows)
    table.rows.push_back({{fmt::format("{:+.2f} %", 100 * row.error), fmt::format("{:.6g}", row.error)}, text_cell(row.quantity),
                          number_cell(row.quantity, row.predicted), number_cell(row.quantity, row.low), number_cell(row.quantity, row.high),
                          number_cell(row.quantity, row.measured), text_cell(row.id), text_cell(row.source)});
  return table;
}

Table errors_table(const Validation& validation) {
  Table table{"errors by source",
              {{"source", "source"},
               {"quantity", "quantity"},
               {"rows", "rows"},
               {"median", "median"},
               {"nine in ten", "ninetieth"},
               {"bias", "bias"},
               {"have a band", "banded"},
               {"in it", "inside"}},
              {}};
  const auto percent = [](double share) { return Cell{fmt::format("{:.2f} %", 100 * share), fmt::format("{:.6g}", share)}; };
  for (const QuantitySummary& each : validation.quantities)
    table.rows.push_back({text_cell(each.source), text_cell(each.quantity), count_cell(static_cast<std::int64_t>(each.rows)),
                          percent(each.median), percent(each.ninetieth), percent(each.bias), count_cell(static_cast<std::int64_t>(each.banded)),
                          count_cell(static_cast<std::int64_t>(each.inside))});
  return table;
}

Table refused_table(const Validation& validation) {
  Table table{"refused", {{"row", "id"}, {"reason", "reason"}, {"source", "source"}}, {}};
  for (const RefusedRow& row : validation.refused) table.rows.push_back({text_cell(row.id), text_cell(row.reason), text_cell(row.source)});
  return table;
}

}  // namespace

Document document_of(const Rehearsal& rehearsal) {
  const Report& report = rehearsal.report;
  Document document = heading_of(report);
  document.tables.push_back(launches_table(rehearsal.kernels[report.worst]));
  document.tables.push_back(memory_table(report.worst_rank().memory));
  document.tables.push_back(ranks_table(report));
  document.text = to_text(rehearsal, 15);
  document.views = rehearsal_views(rehearsal);
  return document;
}

Document document_of(const Validation& validation) {
  Document document;
  std::size_t predicted = 0, rows = 0;
  for (const SourceSummary& source : validation.sources) predicted += source.predicted, rows += source.rows;
  document.title = "predictions against measured runs";
  document.answer = fmt::format("{} of {} rows predicted, {} refused", predicted, rows, validation.refused.size());
  document.tables = {rows_table(validation), errors_table(validation)};
  if (!validation.refused.empty()) document.tables.push_back(refused_table(validation));
  document.text = validation_text(validation, 40);
  return document;
}

}  // namespace plimsoll

// What the report of a planned run consists of.
#include <fmt/core.h>

#include "plimsoll/document.hpp"
#include "plimsoll/report.hpp"
#include "report/answer.hpp"
#include "report/document_parts.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

Table alive_table(const Explanation& explanation) {
  Table table{"alive at the peak",
              {{"category", "category"},
               {"module", "module"},
               {"operation", "operation"},
               {"tensors", "count"},
               {"memory", "bytes"},
               {"largest", "largest_bytes"}},
              {}};
  for (const PeakGroup& group : explanation.alive)
    table.rows.push_back({text_cell(spoken(name_of(group.category))), text_cell(group.module), text_cell(group.operation),
                          count_cell(group.count), bytes_cell(group.bytes), bytes_cell(group.largest)});
  return table;
}

Table changes_table(const Explanation& explanation) {
  Table table{"what would lower device memory most, one change at a time",
              {{"change", "flag"}, {"saves", "saved_bytes"}, {"device", "device_bytes"}, {"verdict", "verdict"}, {"step", "step_time_ratio"}},
              {}};
  for (const Change& change : explanation.changes) {
    const std::string said = said_in_files(change);
    const Cell step = change.slowdown ? Cell{fmt::format("× {:.2f}", *change.slowdown), fmt::format("{:.6g}", *change.slowdown)}
                                      : Cell{"not modelled", ""};
    table.rows.push_back(
        {Cell{said.empty() ? change.flag : said, change.flag}, bytes_cell(change.saved), bytes_cell(change.device), text_cell(spoken_verdict(change.verdict)), step});
  }
  return table;
}

}  // namespace

Document document_of(const Report& report) {
  Document document = heading_of(report);
  document.tables.push_back(ranks_table(report));
  document.tables.push_back(memory_table(report.worst_rank().memory));
  if (!report.worst_rank().memory.phases.empty()) document.tables.push_back(phases_table(report.worst_rank().memory));
  document.tables.push_back(time_table(report.time));
  if (!report.time.dearest.empty()) document.tables.push_back(kernels_table(report.time));
  document.text = to_text(report);
  return document;
}

Document document_of(const Explanation& explanation) {
  Document document = heading_of(explanation.report);
  document.tables.push_back(alive_table(explanation));
  document.tables.push_back(memory_table(explanation.explained().memory));
  document.tables.push_back(changes_table(explanation));
  document.text = to_text(explanation, 8);
  return document;
}

Document document_of(const RunView& view) {
  const Report& report = view.explanation.report;
  Document document = heading_of(report);
  document.command = view.command;
  if (report.ranks.size() > 1) document.tables.push_back(ranks_table(report));
  if (!report.worst_rank().memory.phases.empty()) document.tables.push_back(phases_table(report.worst_rank().memory));
  if (!report.time.dearest.empty()) document.tables.push_back(kernels_table(report.time));
  document.text = to_text(report) + "\n" + to_text(view.explanation, 8);
  document.views = to_json(view);
  return document;
}

}  // namespace plimsoll

// A replay for a colleague and for a program.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plimsoll/calibrate.hpp"
#include "report/document_parts.hpp"
#include "report/json_text.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

Cell error_cell(double predicted, double measured) {
  if (!(measured > 0)) return {"-", ""};
  return {fmt::format("{:+.1f} %", 100 * (predicted / measured - 1)), fmt::format("{:.6g}", predicted / measured - 1)};
}

std::vector<Cell> time_row(const std::string& what, std::int64_t count, double predicted, double measured) {
  return {text_cell(what), count_cell(count), seconds_cell(Seconds(predicted)), seconds_cell(Seconds(measured)), error_cell(predicted, measured)};
}

Table lines_table(const Replay& replay) {
  Table table{"kernels of a step",
              {{"kernels", "what"}, {"count", "count"}, {"predicted", "predicted_seconds"}, {"measured", "measured_seconds"}, {"error", "error"}},
              {}};
  table.rows.push_back(time_row("step", replay.kernels(), replay.predicted_now, replay.measured_step));
  for (const ReplayLine& line : replay.lines) table.rows.push_back(time_row(line.what, line.count, line.predicted_now, line.measured));
  return table;
}

Table memory_table(const Replay& replay) {
  const auto row = [](const char* what, Bytes predicted, Bytes replayed) {
    return std::vector<Cell>{text_cell(what), bytes_cell(predicted), bytes_cell(replayed),
                             error_cell(static_cast<double>(predicted.count), static_cast<double>(replayed.count))};
  };
  return {"memory",
          {{"peak", "peak"}, {"predicted", "predicted_bytes"}, {"replayed", "replayed_bytes"}, {"error", "error"}},
          {row("allocated", replay.predicted_allocated, replay.replayed_allocated), row("reserved", replay.predicted_reserved, replay.replayed_reserved)}};
}

}  // namespace

Document document_of(const Replay& replay) {
  Document document;
  document.title = replay.device.name + " (" + replay.device.backend + ")";
  document.answer = fmt::format("{}: {} a step measured, {} predicted ({}), spread {:.1f} %", document.title, to_string(Seconds(replay.measured_step)),
                                to_string(Seconds(replay.predicted_now)), error_cell(replay.predicted_now, replay.measured_step).shown, 100 * replay.spread);
  document.tables = {lines_table(replay), memory_table(replay)};
  if (!replay.notes.empty()) document.listings.push_back({"notes", replay.notes});
  document.text = to_text(replay);
  return document;
}

std::string to_json(const Replay& replay) {
  Json lines = Json::array();
  for (const ReplayLine& line : replay.lines)
    lines.push_back({{"what", line.what},
                     {"count", line.count},
                     {"predicted_seconds", line.predicted_now},
                     {"measured_seconds", line.measured},
                     {"flops", line.done_flops},
                     {"bytes", line.done_bytes}});
  const auto pair = [](auto predicted, auto replayed) { return Json{{"predicted", predicted}, {"replayed", replayed}}; };
  return json_text({{"schema", "plimsoll/replay/1"},
                    {"device", replay.device.name},
                    {"backend", replay.device.backend},
                    {"step_seconds", pair(replay.predicted_now, replay.measured_step)},
                    {"spread", replay.spread},
                    {"allocated_bytes", pair(replay.predicted_allocated.count, replay.replayed_allocated.count)},
                    {"reserved_bytes", pair(replay.predicted_reserved.count, replay.replayed_reserved.count)},
                    {"lines", std::move(lines)},
                    {"notes", replay.notes}});
}

}  // namespace plimsoll

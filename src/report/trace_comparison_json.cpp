// "plimsoll/compare-trace/1", documented in docs/calibrate.md.
#include <nlohmann/json.hpp>

#include "plimsoll/report.hpp"
#include "plimsoll/trace.hpp"
#include "report/json_text.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

Json seconds(double predicted, double measured) { return {{"predicted", predicted}, {"measured", measured}}; }

Json lines(const std::vector<TraceLine>& lines) {
  Json array = Json::array();
  for (const TraceLine& line : lines)
    array.push_back({{"what", line.what},
                     {"launches", {{"predicted", line.predicted_count}, {"measured", line.measured_count}}},
                     {"seconds", seconds(line.predicted, line.measured)}});
  return array;
}

const char* name_of(TraceDifference::Kind kind) {
  return kind == TraceDifference::Kind::missing ? "missing" : kind == TraceDifference::Kind::extra ? "extra" : "time";
}

Json differences(const std::vector<TraceDifference>& differences) {
  Json array = Json::array();
  for (const TraceDifference& each : differences)
    array.push_back({{"kind", name_of(each.kind)},
                     {"what", each.what},
                     {"where", each.where},
                     {"launches", each.count},
                     {"seconds", seconds(each.predicted, each.measured)}});
  return array;
}

}  // namespace

std::string to_json(const TraceComparison& comparison) {
  const Json object = {
      {"schema", "plimsoll/compare-trace/1"},
      {"step", comparison.step},
      {"matched", comparison.matched},
      {"busy_seconds", seconds(comparison.predicted_busy, comparison.measured_busy)},
      {"step_seconds", seconds(comparison.predicted_step, comparison.measured_step)},
      {"measured_gap_seconds", comparison.measured_gaps},
      {"classes", lines(comparison.classes)},
      {"layers", lines(comparison.layers)},
      {"differences", differences(comparison.differences)},
      {"notes", comparison.notes},
  };
  return json_text(object);
}

}  // namespace plimsoll

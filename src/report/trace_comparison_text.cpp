// A predicted step beside a traced one, for a person.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plimsoll/report.hpp"
#include "plimsoll/trace.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

std::string time_text(double seconds) { return to_string(Seconds(seconds)); }

std::string ratio(double predicted, double measured) { return measured > 0 ? fmt::format("{:+.1f} %", 100 * (predicted / measured - 1)) : "-"; }

void add_lines(const std::vector<TraceLine>& lines, const std::string& heading, std::size_t most, std::string& text) {
  std::vector<std::vector<std::string>> rows{{heading, "kernels", "traced", "predicted", "measured", "error"}};
  for (std::size_t i = 0; i < std::min(most, lines.size()); ++i) {
    const TraceLine& line = lines[i];
    rows.push_back({printable(line.what.empty() ? "(no label)" : line.what), fmt::format("{}", line.predicted_count), fmt::format("{}", line.measured_count),
                    time_text(line.predicted), time_text(line.measured), ratio(line.predicted, line.measured)});
  }
  text += columns(rows);
  if (lines.size() > most) text += fmt::format("  and {} more\n", lines.size() - most);
  text += "\n";
}

void add_differences(const TraceComparison& comparison, TraceDifference::Kind kind, const std::string& heading, std::size_t most, std::string& text) {
  std::vector<std::vector<std::string>> rows{{heading, "where", "times", "predicted", "measured"}};
  std::size_t left = 0;
  for (const TraceDifference& each : comparison.differences) {
    if (each.kind != kind) continue;
    if (rows.size() > most) {
      ++left;
      continue;
    }
    rows.push_back({printable(each.what), printable(each.where), fmt::format("{}", each.count), time_text(each.predicted), time_text(each.measured)});
  }
  if (rows.size() == 1) return;
  text += columns(rows);
  if (left > 0) text += fmt::format("  and {} more\n", left);
  text += "\n";
}

}  // namespace

std::string to_text(const TraceComparison& c, std::size_t most) {
  std::string text = fmt::format("{}: predicted {}, measured {} ({}); {} kernels, copies and collectives stand on both sides\n", printable(c.step),
                                 time_text(c.predicted_step), time_text(c.measured_step), ratio(c.predicted_step, c.measured_step), c.matched);
  text += fmt::format("device at work: predicted {}, measured {} ({}); the rest, {} measured, is its host's (a profiler makes it longer)\n\n",
                      time_text(c.predicted_busy), time_text(c.measured_busy), ratio(c.predicted_busy, c.measured_busy), time_text(c.measured_gaps));
  add_lines(c.classes, "by class", c.classes.size(), text);
  add_lines(c.layers, "by layer", most, text);
  add_differences(c, TraceDifference::Kind::time, "times that differ most", most, text);
  add_differences(c, TraceDifference::Kind::missing, "in the trace alone", most, text);
  add_differences(c, TraceDifference::Kind::extra, "in the program alone", most, text);
  for (const std::string& note : c.notes) text += "note: " + printable(note) + "\n";
  return text;
}

}  // namespace plimsoll

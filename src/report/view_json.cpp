// "plimsoll/view/1", documented in docs/reports.md: what the charts of a page show.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "plimsoll/document.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/rehearse.hpp"
#include "plimsoll/report.hpp"
#include "report/document_parts.hpp"
#include "report/json_text.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

Json memory_object(const MemoryCourse& memory) {
  Json at = Json::array(), allocated = Json::array(), reserved = Json::array(), phases = Json::array();
  for (const CoursePoint& point : memory.points) {
    at.push_back(point.at);
    allocated.push_back(point.allocated.count);
    reserved.push_back(point.reserved.count);
  }
  for (const CoursePhase& phase : memory.phases) phases.push_back({{"at", phase.at}, {"phase", name_of(phase.phase)}});
  return {{"at", std::move(at)},          {"allocated_bytes", std::move(allocated)}, {"reserved_bytes", std::move(reserved)},
          {"phases", std::move(phases)}, {"peak_at", memory.peak_at},               {"peak_label", memory.peak_label}};
}

/// The work of a stream: names once, and for each span the name's index, its start and its length in microseconds.
Json stream_object(const CourseStream& stream) {
  std::vector<std::string> names;
  Json spans = Json::array();
  for (const CourseSpan& span : stream.spans) {
    const auto found = std::find(names.begin(), names.end(), span.what);
    const auto index = found - names.begin();
    if (found == names.end()) names.push_back(span.what);
    spans.push_back({index, static_cast<std::int64_t>(span.start.value * 1e6), static_cast<std::int64_t>((span.end - span.start).value * 1e6)});
  }
  return {{"rank", stream.rank}, {"stream", stream.stream}, {"names", names}, {"spans_us", std::move(spans)}};
}

Json course_object(const Course& course) {
  Json streams = Json::array();
  for (const CourseStream& stream : course.streams) streams.push_back(stream_object(stream));
  return {{"because", course.because},
          {"memory", memory_object(course.memory)},
          {"step_seconds", course.step.value},
          {"streams", std::move(streams)}};
}

Course course_of(const Rehearsal& rehearsal) {
  Course course;
  PlayMemoryOptions options;
  options.steps = 2;
  const Recording& recording = rehearsal.recordings[rehearsal.report.worst];
  if (recording.steps.empty()) {
    course.because = "the program finished no step";
    return course;
  }
  if (recording.has_blocks) course.memory = memory_course(recording.program, options);
  for (std::size_t i = 0; i < rehearsal.recordings.size(); ++i) {
    course.step = std::max(course.step, rehearsal.timelines[i].step);
    if (rehearsal.timelines[i].events.empty()) continue;
    for (CourseStream& stream : stream_course(rehearsal.recordings[i].program, rehearsal.timelines[i], rehearsal.recordings[i].rank))
      course.streams.push_back(std::move(stream));
  }
  return course;
}

}  // namespace

RunView view_of(const Model& model, const Cluster& cluster, const Strategy& strategy, std::optional<std::int64_t> stage) {
  RunView view;
  view.explanation = explain(model, cluster, strategy, stage);
  view.course = course(model, cluster, strategy, view.explanation.explained().stage);
  return view;
}

std::string to_json(const RunView& view) {
  const Json object = {{"schema", "plimsoll/view/1"},
                       {"command", view.command},
                       {"estimate", Json::parse(to_json(view.explanation.report, view.settings))},
                       {"explain", Json::parse(to_json(view.explanation))},
                       {"course", course_object(view.course)}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string rehearsal_views(const Rehearsal& rehearsal) {
  const Json object = {{"schema", "plimsoll/view/1"},
                       {"estimate", Json::parse(to_json(rehearsal.report))},
                       {"course", course_object(course_of(rehearsal))}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll

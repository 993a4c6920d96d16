// Thinning: a step has a hundred thousand instructions, a picture a thousand points.
#include "plimsoll/course.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "estimate/played_time.hpp"
#include "estimate/rank_groups.hpp"
#include "estimate/rank_memory.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/explain.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll {
namespace {

using namespace estimation;

/// "data_shard" as "data shard".
std::string words(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

std::string_view direction_of(const Copy& copy) {
  switch (copy.direction) {
    case Copy::Direction::host_to_device:
      return "copy to the device";
    case Copy::Direction::device_to_host:
      return "copy to the host";
    case Copy::Direction::set:
      return "memory set";
    default:
      return "copy on the device";
  }
}

/// What a person calls the work of an instruction, in that phase.
std::string kind_of_work(const StepProgram& program, const Instruction& instruction, Phase phase) {
  if (instruction.kind == InstructionKind::collective) {
    const Collective& collective = program.collectives[instruction.id];
    return words(name_of(collective.group)) + " " + words(name_of(collective.kind));
  }
  if (instruction.kind == InstructionKind::copy && instruction.stream != kComputeStream)
    return std::string(direction_of(program.copies[instruction.id]));
  if (instruction.again) return "recomputation";
  return words(name_of(phase));
}

/// The phase of every instruction of a step, and how many phases began before it: micro-batches are kept apart.
struct PhaseAt {
  Phase phase = Phase::forward;
  std::uint32_t number = 0;
};

std::vector<PhaseAt> phases_of(const std::vector<Instruction>& step) {
  std::vector<PhaseAt> phases;
  phases.reserve(step.size());
  PhaseAt now;
  for (const Instruction& instruction : step) {
    if (instruction.kind == InstructionKind::phase) now = {static_cast<Phase>(instruction.id), now.number + 1};
    phases.push_back(now);
  }
  return phases;
}

bool is_last(const MemorySample& sample, const std::vector<MemorySample>& samples) { return sample.step == samples.back().step; }

}  // namespace

MemoryCourse memory_course(const StepProgram& program, const PlayMemoryOptions& options, std::size_t points) {
  MemoryCourse course;
  const std::vector<MemorySample> samples = memory_timeline(program, options);
  const auto first = std::find_if(samples.begin(), samples.end(), [&](const MemorySample& each) { return is_last(each, samples); });
  if (first == samples.end() || points == 0) return course;
  const std::uint64_t length = program.step.size();
  Bytes peak;
  for (auto sample = first; sample != samples.end(); ++sample) {
    const std::uint64_t at = sample->instruction, stretch = at * points / length * length / points;
    if (course.points.empty() || course.points.back().at != stretch) course.points.push_back({stretch, Bytes(0), Bytes(0)});
    CoursePoint& point = course.points.back();
    point.allocated = std::max(point.allocated, sample->allocated);
    point.reserved = std::max(point.reserved, sample->reserved);
    if (course.phases.empty() || course.phases.back().phase != sample->phase) course.phases.push_back({at, sample->phase});
    if (sample->allocated <= peak) continue;
    peak = sample->allocated;
    course.peak_at = at;
    course.peak_label = sample->label < program.labels.size() ? program.labels[sample->label] : std::string();
  }
  return course;
}

std::vector<CourseStream> stream_course(const StepProgram& program, const Timeline& timeline, std::int64_t rank) {
  constexpr double kPause = 1.0 / 2000;  // of a step: no picture shows less
  const Seconds pause = kPause * timeline.step;
  const std::vector<PhaseAt> phases = phases_of(program.step);
  struct Open {
    CourseSpan span;
    std::uint32_t number = 0;
  };
  std::vector<std::vector<Open>> open(program.streams.size());
  for (const Event& event : timeline.events) {
    const Instruction& instruction = program.step[event.instruction];
    const PhaseAt& at = phases[event.instruction];
    std::vector<Open>& spans = open[event.stream];
    std::string what = kind_of_work(program, instruction, at.phase);
    const bool same_pass = event.stream != kComputeStream || spans.empty() || spans.back().number == at.number;
    if (!spans.empty() && same_pass && spans.back().span.what == what && event.start - spans.back().span.end <= pause)
      spans.back().span.end = std::max(spans.back().span.end, event.end);
    else
      spans.push_back({{std::move(what), event.start, event.end}, at.number});
  }
  std::vector<CourseStream> streams;
  for (std::size_t id = 0; id < open.size(); ++id) {
    if (open[id].empty()) continue;
    streams.push_back({rank, id == kComputeStream ? "compute" : words(program.streams[id]), {}});
    for (Open& each : open[id])
      if (each.span.end - each.span.start > Seconds(0)) streams.back().spans.push_back(std::move(each.span));
  }
  return streams;
}

Course course(const Model& model, const Cluster& cluster, const Strategy& said, std::int64_t shown) {
  const Strategy strategy = resolve(said, model, cluster);
  if (shown < 0 || shown >= strategy.pp) fail(fmt::format("there is no pipeline stage {}", shown), {}, fmt::format("stages are 0 to {}", strategy.pp - 1));
  Course course;
  RankPrograms programs(model, strategy, cluster);
  Pricer pricer(run_pricing(cluster, strategy, group_shapes(strategy, Topology(cluster))));
  std::vector<StepProgram> steps;
  std::vector<Score> scores;
  for (int each = 0; each < strategy.pp; ++each) {
    auto program = programs.of_stage(each, course.because);
    if (!program) return course;
    scores.push_back(pricer.score(*program));
    steps.push_back(*std::move(program));
  }
  const StepProgram& program = steps[static_cast<std::size_t>(shown)];
  PlayMemoryOptions options = play_options(program, cluster, strategy);
  options.capacity = Bytes(INT64_MAX);  // where it does not fit, what it would take is shown
  course.memory = memory_course(program, options);
  const std::vector<Timeline> timelines = play_ranks(scores, pricer.pricing(), true);
  for (std::size_t each = 0; each < timelines.size(); ++each) {
    course.step = std::max(course.step, timelines[each].step);
    for (CourseStream& stream : stream_course(steps[each], timelines[each], static_cast<std::int64_t>(each)))
      course.streams.push_back(std::move(stream));
  }
  return course;
}

}  // namespace plimsoll

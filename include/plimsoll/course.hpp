/// The course of one step, thinned to what a picture can show: memory over the step, and what every stream of every pipeline rank does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/memory.hpp"
#include "plimsoll/play.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

struct Model;
struct Strategy;

/// The most that was held over a stretch of a step; stretches are as long as the picture's points allow.
struct CoursePoint {
  std::uint64_t at = 0;       ///< instructions of the step issued before
  Bytes allocated, reserved;  ///< the largest of the stretch
};

/// Where a phase of the step begins.
struct CoursePhase {
  std::uint64_t at = 0;
  Phase phase = Phase::forward;
};

/// Memory over the last step that was played, in the order of issue: a program has no clock.
struct MemoryCourse {
  std::vector<CoursePoint> points;
  std::vector<CoursePhase> phases;
  std::uint64_t peak_at = 0;
  std::string peak_label;
};

/// Work of one kind that a stream does without a pause to speak of.
struct CourseSpan {
  std::string what;  ///< "forward", "backward", "recomputation", "optimizer", "data shard all gather", "copy to the host"
  Seconds start, end;
};

struct CourseStream {
  std::int64_t rank = 0;     ///< pipeline stage, or the rank of a rehearsal
  std::string stream;        ///< "compute", "data_shard" …
  std::vector<CourseSpan> spans;
};

struct Course {
  MemoryCourse memory;
  std::vector<CourseStream> streams;
  Seconds step;              ///< the longest of any rank
  std::string because;       ///< why there is nothing to show; empty where there is
};

/// The memory of a program's last step in at most `points` stretches of equal length.
MemoryCourse memory_course(const StepProgram& program, const PlayMemoryOptions& options, std::size_t points = 600);

/// The streams of a played step; work of one kind that is closer together than a 2000th of the step is one span.
std::vector<CourseStream> stream_course(const StepProgram& program, const Timeline& timeline, std::int64_t rank);

/// Of a run: memory of a rank of pipeline stage `stage`, and the streams of all stages. Throws Error as estimate does, and for a stage that
/// does not exist; where there is no lowering, `because` says why and the rest is empty.
Course course(const Model& model, const Cluster& cluster, const Strategy& strategy, std::int64_t stage);

}  // namespace plimsoll

// The course of a step is a thinned view of what estimate plays: its peaks and its sums are estimate's own.
#include "plimsoll/course.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"

namespace plimsoll {
namespace {

Strategy strategy_of(std::vector<std::pair<std::string, std::string>> options) {
  Strategy strategy;
  set_options(strategy, options);
  return strategy;
}

TEST(Course, ItsHighestPointIsThePeakOfTheEstimate) {
  const Model model = load_model("gpt2");
  const Cluster cluster = parse_cluster("8xh100-sxm");
  const Strategy strategy = strategy_of({{"fsdp", "full"}, {"micro_batch", "4"}, {"seq", "512"}});
  const Report report = estimate(model, cluster, strategy);
  const Course seen = course(model, cluster, strategy, 0);
  Bytes allocated, reserved;
  for (const CoursePoint& point : seen.memory.points) {
    allocated = std::max(allocated, point.allocated);
    reserved = std::max(reserved, point.reserved);
    EXPECT_LE(point.allocated, point.reserved);
  }
  EXPECT_EQ(allocated, report.worst_rank().memory.allocated);
  EXPECT_EQ(reserved, report.worst_rank().memory.reserved);
  EXPECT_EQ(seen.memory.peak_label, report.worst_rank().memory.peak_label);
  EXPECT_LE(seen.memory.points.size(), 600U);
}

TEST(Course, FewerPointsKeepThePeak) {
  const PlayableRank rank = playable_rank(load_model("gpt2"), parse_cluster("1xh100-sxm"), strategy_of({{"micro_batch", "2"}, {"seq", "256"}}), 0);
  const auto highest = [&](std::size_t points) {
    const MemoryCourse thinned = memory_course(rank.program, rank.options, points);
    EXPECT_LE(thinned.points.size(), points);
    return std::max_element(thinned.points.begin(), thinned.points.end(), [](const auto& a, const auto& b) { return a.allocated < b.allocated; })->allocated;
  };
  EXPECT_EQ(highest(5), highest(5000));
}

TEST(Course, StreamsOfEveryStageLieInTheStepOneAfterTheOther) {
  const Course seen = course(load_model("gpt2"), parse_cluster("4xh100-sxm"),
                             strategy_of({{"framework", "megatron-core"}, {"pp", "4"}, {"micro_batch", "1"}, {"global_batch", "8"}, {"seq", "512"}}), 0);
  std::int64_t ranks = 0;
  for (const CourseStream& stream : seen.streams) {
    ranks = std::max(ranks, stream.rank + 1);
    Seconds end;
    for (const CourseSpan& span : stream.spans) {
      EXPECT_LE(end, span.start) << stream.stream;
      EXPECT_LT(span.start, span.end);
      end = span.end;
    }
  }
  EXPECT_EQ(ranks, 4);
  const auto forwards = [&](std::int64_t rank) {
    const auto stream = std::find_if(seen.streams.begin(), seen.streams.end(), [&](const auto& each) { return each.rank == rank && each.stream == "compute"; });
    return std::count_if(stream->spans.begin(), stream->spans.end(), [](const CourseSpan& span) { return span.what == "forward"; });
  };
  EXPECT_GE(forwards(0), 8);  // a span for each micro-batch at least
}

TEST(Course, AStageThatIsNotThereIsRefused) {
  EXPECT_THROW(course(load_model("gpt2"), parse_cluster("1xh100-sxm"), strategy_of({{"micro_batch", "1"}, {"seq", "128"}}), 1), Error);
}

}  // namespace
}  // namespace plimsoll

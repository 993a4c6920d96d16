#include <gtest/gtest.h>

#include <algorithm>

#include "plimsoll/error.hpp"
#include "plimsoll/play.hpp"

namespace plimsoll {
namespace {

/// Equal stages: F = 1, B = 2 (I = W = 1), all divided by the chunks of a rank.
PipelineTimes equal(double chunks = 1, double transfer = 0) {
  return {{{Seconds(1 / chunks), Seconds(2 / chunks), Seconds(1 / chunks), Seconds(1 / chunks)}}, Seconds(transfer), Seconds()};
}

double makespan(const char* name, int p, int m, int v, const PipelineTimes& times) {
  return play_pipeline(make_schedule(name, p, m, v), times).makespan.value;
}

constexpr double kExact = 1e-9;

// (m + p − 1)(F + B) = 11 · 3 for both (Narayanan 2021).
TEST(PlayPipeline, GPipeAndOneForwardOneBackward) {
  EXPECT_NEAR(makespan("gpipe", 4, 8, 1, equal()), 33, kExact);
  EXPECT_NEAR(makespan("1f1b", 4, 8, 1, equal()), 33, kExact);
  EXPECT_NEAR(makespan("1f1b", 4, 2, 1, equal()), 15, kExact);
}

// Every dependency that crosses ranks costs 0.1: 16 of them lie on the critical path.
TEST(PlayPipeline, PointToPoint) {
  EXPECT_NEAR(makespan("1f1b", 4, 8, 1, equal(1, 0.1)), 34.6, kExact);
  EXPECT_NEAR(makespan("interleaved-1f1b", 4, 8, 2, equal(2, 0.1)), 29.9, kExact);
}

// Uneven stages (embedding on the first, head and loss on the last): F = 1.2, 1, 1, 1.6 and B = 2F.
TEST(PlayPipeline, UnevenStages) {
  PipelineTimes times;
  for (double forward : {1.2, 1.0, 1.0, 1.6}) times.stages.push_back({Seconds(forward), Seconds(2 * forward), Seconds(), Seconds()});
  EXPECT_NEAR(makespan("1f1b", 4, 8, 1, times), 48.0, kExact);
  EXPECT_NEAR(makespan("1f1b", 4, 4, 1, times), 28.8, kExact);
}

// m(F + B) + (p − 1)(F + B)/v.
TEST(PlayPipeline, Interleaved) {
  EXPECT_NEAR(makespan("interleaved-1f1b", 4, 8, 2, equal(2)), 28.5, kExact);
  EXPECT_NEAR(makespan("interleaved-1f1b", 4, 8, 4, equal(4)), 26.25, kExact);
  EXPECT_NEAR(makespan("interleaved-1f1b", 4, 12, 2, equal(2)), 40.5, kExact);
}

// m·3 + (p − 1)(F + I − W): 27 with equal thirds, 28.2 with I = 1.2 and W = 0.8 (Qi 2023).
TEST(PlayPipeline, ZeroBubbleH1) {
  EXPECT_NEAR(makespan("zb-h1", 4, 8, 1, equal()), 27, kExact);
  PipelineTimes uneven = equal();
  uneven.stages[0].input_gradient = Seconds(1.2);
  uneven.stages[0].weight_gradient = Seconds(0.8);
  EXPECT_NEAR(makespan("zb-h1", 4, 8, 1, uneven), 28.2, kExact);
}

// No rank idles between its first and its last slot (span 24 = m·3), but the ranks are staggered: a barrier at the end makes it 27.
TEST(PlayPipeline, ZeroBubbleH2SpanAndMakespan) {
  const auto timeline = play_pipeline(make_schedule("zb-h2", 4, 8), equal());
  EXPECT_NEAR(timeline.makespan.value, 27, kExact);
  EXPECT_NEAR(timeline.span.value, 24, kExact);
}

TEST(PlayPipeline, ZeroBubbleV) {
  const auto eight = play_pipeline(make_schedule("zbv", 4, 8), equal(2));
  EXPECT_NEAR(eight.makespan.value, 25.5, kExact);
  EXPECT_NEAR(eight.span.value, 24, kExact);
  const auto sixteen = play_pipeline(make_schedule("zbv", 4, 16), equal(2));
  EXPECT_NEAR(sixteen.makespan.value, 49.5, kExact);
  EXPECT_NEAR(sixteen.span.value, 48, kExact);
}

// DualPipe: F = 1, B = 2, W = 1; a forward overlapped with a backward takes F&B. m(F + B) + (p/2 − 1)(F&B + B − 3W) with M counting both
// directions: 24 + 2 for p = 4; 60 + 6 for p = 8, M = 20; 60.4 when the overlap saves 0.4 per pair.
TEST(PlayPipeline, DualPipe) {
  PipelineTimes times = equal();
  times.overlapped_pair = Seconds(3);
  EXPECT_NEAR(makespan("dualpipe", 4, 8, 2, times), 26, kExact);
  EXPECT_NEAR(makespan("dualpipe", 8, 20, 2, times), 66, kExact);
  times.overlapped_pair = Seconds(2.6);
  EXPECT_NEAR(makespan("dualpipe", 8, 20, 2, times), 60.4, kExact);
}

TEST(PlayPipeline, BubbleFractions) {
  EXPECT_NEAR(bubble_fraction(8, 32), 7.0 / 39, kExact);
  EXPECT_NEAR(bubble_fraction(8, 32, 4), 7.0 / 135, kExact);
  EXPECT_NEAR(play_pipeline(make_schedule("1f1b", 8, 32), equal()).bubble_fraction, 7.0 / 39, kExact);
  EXPECT_NEAR(play_pipeline(make_schedule("interleaved-1f1b", 8, 32, 4), equal(4)).bubble_fraction, 7.0 / 135, kExact);
}

// No schedule of the catalogue waits for itself, on any shape that it accepts; no step is shorter than a rank's own work or than the
// way of one micro-batch through all stages and back.
TEST(PlayPipeline, EveryScheduleRunsToItsEnd) {
  for (const auto& info : schedules())
    for (int p = 1; p <= 8; ++p)
      for (int m : {1, 2, 3, 4, 6, 8, 12, 16, 24})
        for (int v : {1, 2, 3}) {
          if (!schedule_refusal(info.name, p, m, v).empty()) continue;
          const Schedule schedule = make_schedule(info.name, p, m, v);
          const auto timeline = play_pipeline(schedule, equal(1, 0.05));
          const std::string what = info.name + " p " + std::to_string(p) + " m " + std::to_string(m) + " v " + std::to_string(v);
          EXPECT_GE(timeline.makespan.value + kExact, timeline.ideal.value) << what;
          EXPECT_GE(timeline.makespan.value + kExact, schedule.model_stages() * 2.0) << what;
          EXPECT_GE(timeline.bubble_fraction, -kExact) << what;
          EXPECT_LT(timeline.bubble_fraction, 1) << what;
        }
}

TEST(PlayPipeline, DurationsMustMatchTheStages) {
  PipelineTimes times = equal();
  times.stages.resize(3, times.stages[0]);
  EXPECT_THROW(play_pipeline(make_schedule("1f1b", 4, 8), times), Error);
}

}  // namespace
}  // namespace plimsoll

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plimsoll/report.hpp"

namespace plimsoll {
namespace {

using nlohmann::json;

Instruction instruction(InstructionKind kind, std::uint32_t id, StreamId stream = kComputeStream, std::int64_t bytes = 0, std::uint32_t label = 0) {
  return {kind, stream, Category::activation, id, bytes, label};
}

/// Stage 0 computes and sends what stage 1 receives; both hold 1,024 bytes while they compute.
RankTimeline rank(std::int64_t stage) {
  RankTimeline rank;
  rank.stage = stage;
  StepProgram& program = rank.rank.program;
  program.streams = {"compute", "transfers"};
  program.labels = {"", "layer: \x01 \"gelu\""};
  program.copies = {{Copy::Direction::device_to_device, 1024}};
  const bool sends = stage == 0;
  program.collectives = {{sends ? CollectiveKind::send : CollectiveKind::receive, Group::pipeline, 1024, DType::bf16, sends ? 1 : 0}};
  program.step = {instruction(InstructionKind::phase, static_cast<std::uint32_t>(Phase::forward)),
                  instruction(InstructionKind::alloc, 0, kComputeStream, 1000, 1),
                  instruction(InstructionKind::copy, 0, kComputeStream, 0, 1),
                  instruction(InstructionKind::collective, 0, 1),
                  instruction(InstructionKind::phase, static_cast<std::uint32_t>(Phase::backward)),
                  instruction(InstructionKind::free, 0),
                  instruction(InstructionKind::copy, 0)};
  rank.timeline.events = {{2, 0, Seconds(1e-6), Seconds(3e-6)}, {3, 1, Seconds(3e-6), Seconds(5e-6)}, {6, 0, Seconds(6e-6), Seconds(7e-6)}};
  return rank;
}

std::vector<json> events_of(const json& trace, const std::string& kind) {
  std::vector<json> events;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == kind) events.push_back(event);
  return events;
}

TEST(StepTrace, WorkPhasesMemoryAndPeak) {
  const json trace = json::parse(to_step_trace({rank(0)}, "a \"title\""));
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  const auto spans = events_of(trace, "X");
  ASSERT_EQ(spans.size(), 5u);  // three pieces of work, two phases
  EXPECT_EQ(spans[0]["name"], "layer: \x01 \"gelu\"");
  EXPECT_EQ(spans[0]["ts"], 1.0);
  EXPECT_EQ(spans[0]["dur"], 2.0);
  EXPECT_EQ(spans[1]["tid"], 1);
  // The forward phase lasts until the first work of backward, on a row below the two streams.
  EXPECT_EQ(spans[3]["name"], "forward");
  EXPECT_EQ(spans[3]["tid"], 2);
  EXPECT_EQ(spans[3]["dur"], 5.0);
  EXPECT_EQ(spans[4]["name"], "backward");
  // 1,000 bytes are rounded to 1,024 and stay until the free before the last copy.
  const auto counters = events_of(trace, "C");
  ASSERT_EQ(counters.size(), 4u);
  EXPECT_EQ(counters[0]["args"]["allocated"], 1024);
  EXPECT_EQ(counters[0]["ts"], 1.0);
  EXPECT_EQ(counters[1]["args"]["allocated"], 1024);  // the most since then,
  EXPECT_EQ(counters[2]["args"]["allocated"], 0);     // and what is left when the last copy starts
  EXPECT_EQ(counters[2]["ts"], 6.0);
  const auto peaks = events_of(trace, "i");
  ASSERT_EQ(peaks.size(), 1u);
  EXPECT_EQ(peaks[0]["name"], "peak of allocated bytes: layer: \x01 \"gelu\"");
  EXPECT_TRUE(events_of(trace, "s").empty());  // nobody receives
}

TEST(StepTrace, ASendPointsToItsReceive) {
  const json trace = json::parse(to_step_trace({rank(0), rank(1)}, "two"));
  const auto starts = events_of(trace, "s"), ends = events_of(trace, "f");
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(starts[0]["pid"], 0);
  EXPECT_EQ(ends[0]["pid"], 1);
  EXPECT_EQ(starts[0]["ts"], 4.0);  // the middle of the transfer
  EXPECT_EQ(starts[0]["id"], ends[0]["id"]);
}

}  // namespace
}  // namespace plimsoll

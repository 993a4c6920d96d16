#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plimsoll/report.hpp"

namespace plimsoll {
namespace {

using nlohmann::json;

json parsed(const std::vector<MemorySample>& samples, const std::vector<std::string>& labels) {
  return json::parse(to_memory_trace(samples, labels, "a \"title\""));
}

// Two phases of step 1 from instruction 3 to 9, the peak at the second sample.
TEST(MemoryTraceJson, CounterPhasesAndPeak) {
  const std::vector<MemorySample> samples{{0, Phase::forward, 3, 0, Bytes(10), Bytes(20)},
                                          {0, Phase::forward, 5, 1, Bytes(15), Bytes(20)},
                                          {0, Phase::backward, 8, 0, Bytes(12), Bytes(20)}};
  const json trace = parsed(samples, {"", "h.0: \x01 \"gelu\""});
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  std::vector<json> counters, spans, peaks;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "C") counters.push_back(event);
    if (event["ph"] == "X") spans.push_back(event);
    if (event["ph"] == "i") peaks.push_back(event);
  }
  ASSERT_EQ(counters.size(), 3u);
  EXPECT_EQ(counters[1]["args"], (json{{"allocated", 15}, {"reserved", 20}}));
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["name"], "forward, step 1");
  EXPECT_EQ(spans[0]["ts"], 3);
  EXPECT_EQ(spans[0]["dur"], 5);
  EXPECT_EQ(spans[1]["name"], "backward, step 1");
  ASSERT_EQ(peaks.size(), 1u);
  EXPECT_EQ(peaks[0]["name"], "peak: h.0: \x01 \"gelu\"");
  EXPECT_EQ(peaks[0]["ts"], 5);
}

TEST(MemoryTraceJson, NothingPlayed) { EXPECT_EQ(parsed({}, {})["traceEvents"].size(), 2u); }

}  // namespace
}  // namespace plimsoll

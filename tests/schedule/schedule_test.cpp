#include "plimsoll/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

std::string text_of(const std::vector<Slot>& slots) {
  std::string text;
  for (const Slot& slot : slots) {
    const char* letter = slot.pass == Pass::forward          ? "F"
                         : slot.pass == Pass::backward       ? "B"
                         : slot.pass == Pass::input_gradient ? "I"
                                                             : "W";
    text += std::string(text.empty() ? "" : " ") + letter + std::to_string(slot.micro_batch);
  }
  return text;
}

std::vector<int> in_flight(const Schedule& schedule) {
  std::vector<int> peaks;
  for (int rank = 0; rank < schedule.shape.stages; ++rank) peaks.push_back(peak_in_flight(schedule, rank));
  return peaks;
}

// Written out by hand from the definition: 1F1B on rank 1 of 4 with 4 micro-batches warms up with p − r − 1 = 2 forwards.
TEST(Schedule, OneForwardOneBackwardByHand) {
  EXPECT_EQ(text_of(make_schedule("1f1b", 4, 4).ranks[1]), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text_of(make_schedule("gpipe", 2, 3).ranks[0]), "F0 F1 F2 B0 B1 B2");
}

// ZB-H1, p = 4, rank 1: the weight gradient lags the input gradient by one micro-batch (Qi 2023, figure 3).
TEST(Schedule, ZeroBubbleH1ByHand) { EXPECT_EQ(text_of(make_schedule("zb-h1", 4, 4).ranks[1]), "F0 F1 F2 I0 F3 I1 W0 I2 W1 I3 W2 W3"); }

// Interleaved, p = 2, v = 2, m = 2, rank 0: warm-up 2(p−r−1) + (v−1)p = 4 forwards: chunk 0 of both micro-batches, then chunk 1.
TEST(Schedule, InterleavedByHand) {
  const auto slots = make_schedule("interleaved-1f1b", 2, 2, 2).ranks[0];
  ASSERT_EQ(slots.size(), 8u);
  const std::vector<std::pair<int, int>> expected{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 0}, {1, 1}, {0, 0}, {0, 1}};
  for (std::size_t i = 0; i < slots.size(); ++i) EXPECT_EQ(std::make_pair(slots[i].chunk, slots[i].micro_batch), expected[i]) << i;
}

// Peaks in flight, p = 4, m = 8: GPipe holds m, 1F1B p − r, interleaved its warm-up + 1, ZB-H1 p on every rank, ZB-H2 2p − 1,
// ZB-V 2p half-chunks, DualPipe p + 1.
TEST(Schedule, PeakInFlight) {
  EXPECT_EQ(in_flight(make_schedule("gpipe", 4, 8)), (std::vector<int>{8, 8, 8, 8}));
  EXPECT_EQ(in_flight(make_schedule("1f1b", 4, 8)), (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(in_flight(make_schedule("1f1b", 4, 2)), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(in_flight(make_schedule("interleaved-1f1b", 4, 8, 2)), (std::vector<int>{11, 9, 7, 5}));
  EXPECT_EQ(in_flight(make_schedule("interleaved-1f1b", 4, 8, 4)), (std::vector<int>{19, 17, 15, 13}));
  EXPECT_EQ(in_flight(make_schedule("interleaved-1f1b", 4, 12, 2)), (std::vector<int>{11, 9, 7, 5}));
  EXPECT_EQ(in_flight(make_schedule("zb-h1", 4, 8)), (std::vector<int>{4, 4, 4, 4}));
  EXPECT_EQ(in_flight(make_schedule("zb-h2", 4, 8)), (std::vector<int>{7, 7, 7, 7}));
  EXPECT_EQ(in_flight(make_schedule("zbv", 4, 8)), (std::vector<int>{8, 8, 8, 8}));
  EXPECT_EQ(in_flight(make_schedule("dualpipe", 4, 8)), (std::vector<int>{5, 5, 5, 5}));
  EXPECT_EQ(in_flight(make_schedule("dualpipe", 8, 20)), (std::vector<int>(8, 9)));
}

// V-Half and V-Min (Qi 2024, table 1, in chunks of which 1F1B holds 2p): p + 2 at most, and ⌈2p/3⌉ + 2, on every rank alike, however many
// micro-batches there are; a rank's first passes are those of its pattern, moved up where memory allows.
TEST(Schedule, ControllableMemoryHoldsHalfAndAThird) {
  for (const int stages : {4, 6, 8})
    for (const int micro_batches : {16, 64}) {
      const std::vector<int> half = in_flight(make_schedule("v-half", stages, micro_batches)),
                             least = in_flight(make_schedule("v-min", stages, micro_batches));
      EXPECT_LE(*std::max_element(half.begin(), half.end()), stages + 2) << stages;
      EXPECT_LE(*std::max_element(least.begin(), least.end()), (2 * stages + 2) / 3 + 2) << stages;
      EXPECT_GE(*std::max_element(half.begin(), half.end()), *std::max_element(least.begin(), least.end()));
    }
  EXPECT_NE(schedule_refusal("v-half", 100, 8, 2).find("64"), std::string::npos);
}

// Whatever the schedule and the shape: every micro-batch passes every chunk of every rank exactly once forward and once backward (whole,
// or as input and weight gradient), and never backward before forward.
TEST(Schedule, EveryPassExactlyOnce) {
  for (const auto& info : schedules()) {
    int built = 0;
    for (int p = 1; p <= 8; ++p)
      for (int m : {1, 2, 3, 4, 6, 8, 12, 16, 24}) {
        for (int v : {1, 2, 3}) {
          if (!schedule_refusal(info.name, p, m, v).empty()) {
            EXPECT_THROW(make_schedule(info.name, p, m, v), Error);
            continue;
          }
          ++built;
          const Schedule schedule = make_schedule(info.name, p, m, v);
          const int per_chunk = schedule.placement == Placement::bidirectional ? m / 2 : m;
          for (const auto& slots : schedule.ranks) {
            std::map<std::pair<int, int>, int> forwards, inputs, weights;
            for (const Slot& slot : slots) {
              const auto key = std::make_pair(slot.chunk, slot.micro_batch);
              if (slot.pass == Pass::forward) ++forwards[key];
              if (slot.pass == Pass::backward || slot.pass == Pass::input_gradient) {
                ++inputs[key];
                EXPECT_EQ(forwards[key], 1);
              }
              if (slot.pass == Pass::backward || slot.pass == Pass::weight_gradient) {
                ++weights[key];
                EXPECT_EQ(inputs[key], 1);
              }
            }
            EXPECT_EQ(forwards.size(), static_cast<std::size_t>(v * per_chunk)) << info.name << " " << p << " " << m << " " << v;
            for (const auto* counts : {&forwards, &inputs, &weights}) {
              EXPECT_EQ(counts->size(), forwards.size()) << info.name << " " << p << " " << m << " " << v;
              for (const auto& [key, count] : *counts) EXPECT_EQ(count, 1);
            }
          }
        }
      }
    EXPECT_GT(built, 0) << info.name;
  }
}

TEST(Schedule, NamesAndAliases) {
  EXPECT_EQ(schedule_name("1F1B"), "1f1b");
  EXPECT_EQ(schedule_name("zbvzerobubble"), "zbv");
  EXPECT_EQ(schedule_name("ZBVZeroBubble"), "zbv");
  EXPECT_EQ(schedule_name("interleavedzerobubble"), "interleaved-zero-bubble");
  EXPECT_EQ(schedule_name("Interleaved1F1B"), "interleaved-1f1b");
  EXPECT_EQ(schedule_name("GPipe"), "gpipe");
  EXPECT_EQ(schedule_name("none"), "none");
  try {
    schedule_name("1f1");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.hint().find("1f1b"), std::string::npos);
  }
}

// Megatron-LM refuses interleaving unless m is a multiple of p; DualPipe wants an even p and m ≥ 2p.
TEST(Schedule, RefusalsNameTheReason) {
  EXPECT_NE(schedule_refusal("interleaved-1f1b", 4, 6, 2).find("multiple"), std::string::npos);
  EXPECT_NE(schedule_refusal("dualpipe", 3, 8).find("even"), std::string::npos);
  EXPECT_NE(schedule_refusal("dualpipe", 8, 8).find("twice"), std::string::npos);
  EXPECT_NE(schedule_refusal("zbv", 4, 8, 3).find("2 model chunks"), std::string::npos);
  EXPECT_NE(schedule_refusal("none", 4, 8).find("one stage"), std::string::npos);
  EXPECT_NE(schedule_refusal("1f1b", 100000, 1000000).find("too many"), std::string::npos);
  EXPECT_FALSE(schedule_refusal("1f1b", 0, 4).empty());
  EXPECT_FALSE(schedule_refusal("1f1b", 4, -1).empty());
}

TEST(Schedule, Placements) {
  const Schedule looped = make_schedule("interleaved-1f1b", 4, 8, 2);
  EXPECT_EQ(looped.model_stages(), 8);
  EXPECT_EQ(looped.stage_of(1, 1), 5);
  const Schedule v = make_schedule("zbv", 4, 8);
  EXPECT_EQ(v.stage_of(0, 1), 7);
  EXPECT_EQ(v.stage_of(3, 1), 4);
  const Schedule dual = make_schedule("dualpipe", 4, 8);
  EXPECT_EQ(dual.model_stages(), 4);
  EXPECT_EQ(dual.stage_of(0, 1), 3);
}

}  // namespace
}  // namespace plimsoll

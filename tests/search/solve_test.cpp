// Solvers against trying every value, sweeps and waterfalls against estimates of their points.
#include <gtest/gtest.h>

#include <algorithm>

#include "plimsoll/error.hpp"
#include "plimsoll/search.hpp"
#include "units/json_reader.hpp"

namespace plimsoll {
namespace {

SearchRequest gpt2_on_one(const std::vector<std::pair<std::string, std::string>>& base, const std::vector<SearchAxis>& axes = {}) {
  SearchRequest request;
  request.model = load_model("gpt2");
  request.cluster = parse_cluster("1xrtx4090");
  set_options(request.base, base);
  request.axes = axes;
  request.width = SearchWidth::named;
  request.threads = 2;
  return request;
}

/// Whether gpt2 fits on that device with these options.
bool fits(std::vector<std::pair<std::string, std::string>> options, const Model& model = load_model("gpt2")) {
  Strategy strategy;
  set_options(strategy, options);
  return estimate(model, parse_cluster("1xrtx4090"), strategy).verdict != Verdict::does_not_fit;
}

TEST(Largest, MicroBatchIsTheLastThatFits) {
  const Solution solution = largest(gpt2_on_one({{"seq", "1024"}}), "micro_batch");
  ASSERT_TRUE(solution.plan);
  const int most = std::stoi(solution.value);
  EXPECT_GT(most, 1);
  for (int size = 1; size <= most + 1; ++size)
    EXPECT_EQ(fits({{"seq", "1024"}, {"micro_batch", std::to_string(size)}}), size <= most) << size;
  EXPECT_EQ(solution.next, std::to_string(most + 1));
  EXPECT_NE(solution.because.find("it needs"), std::string::npos);
}

/// A micro-batch must divide its global batch: of 36's divisors 1, 2, 3, 4, 6, 9, 12, 18, 36 the last that fits.
TEST(Largest, MicroBatchDividesTheGlobalBatch) {
  const Solution solution = largest(gpt2_on_one({{"seq", "1024"}, {"global_batch", "36"}}), "micro_batch");
  ASSERT_TRUE(solution.plan);
  std::string last;
  for (const char* size : {"1", "2", "3", "4", "6", "9", "12", "18", "36"})
    if (fits({{"seq", "1024"}, {"global_batch", "36"}, {"micro_batch", size}})) last = size;
  EXPECT_EQ(solution.value, last);
}

/// Of one recomputed setting and one that is not the former reaches further: a solution is over all plans of the axes.
TEST(Largest, IsOverAllPlansOfTheAxes) {
  const Solution none = largest(gpt2_on_one({{"seq", "1024"}, {"recompute", "none"}}), "micro_batch");
  const Solution either = largest(gpt2_on_one({{"seq", "1024"}}, {{"recompute", {"none", "full"}}}), "micro_batch");
  ASSERT_TRUE(none.plan && either.plan);
  EXPECT_GT(std::stoi(either.value), std::stoi(none.value));
  EXPECT_NE(either.plan->command.find("--recompute full"), std::string::npos);
}

TEST(Largest, SequenceGoesInThousandsOfTokens) {
  SearchRequest request = gpt2_on_one({{"micro_batch", "1"}});
  request.model = load_model("qwen2.5-0.5b");
  const Solution solution = largest(request, "seq");
  ASSERT_TRUE(solution.plan);
  const int most = std::stoi(solution.value);
  EXPECT_EQ(most % 1024, 0);
  EXPECT_TRUE(fits({{"micro_batch", "1"}, {"seq", std::to_string(most)}}, request.model));
  EXPECT_FALSE(fits({{"micro_batch", "1"}, {"seq", std::to_string(most + 1024)}}, request.model));
}

/// Every layer more needs more; the command names the model that was asked about.
TEST(Largest, LayersOfTheSameModel) {
  const Solution solution = largest(gpt2_on_one({{"micro_batch", "4"}, {"seq", "1024"}}), "layers");
  ASSERT_TRUE(solution.plan);
  EXPECT_GE(std::stoi(solution.value), 12);  // gpt2 itself fits
  EXPECT_EQ(std::stoi(solution.next), std::stoi(solution.value) + 1);
}

TEST(Largest, WhatDoesNotFitAtAllSaysWhy) {
  SearchRequest request = gpt2_on_one({{"seq", "1024"}});
  request.model = load_model("llama-3.1-8b");
  const Solution solution = largest(request, "micro_batch");
  EXPECT_FALSE(solution.plan);
  EXPECT_EQ(solution.next, "1");
  EXPECT_NE(to_text(solution).find("no micro"), std::string::npos);
  EXPECT_THROW(largest(request, "width"), Error);
}

/// From none on, the first that fits: of `n` recomputed layers one less does not.
TEST(LeastRecompute, IsTheFirstThatFits) {
  const std::vector<std::pair<std::string, std::string>> base{{"micro_batch", "24"}, {"seq", "1024"}};
  const auto with_layers = [&](int layers) {
    auto options = base;
    options.insert(options.end(), {{"recompute", "full"}, {"recompute_method", "block"}, {"recompute_num_layers", std::to_string(layers)}});
    return options;
  };
  auto none = base;
  none.emplace_back("recompute", "none");
  ASSERT_FALSE(fits(none));
  const Solution solution = least_recompute(gpt2_on_one(base));
  ASSERT_TRUE(solution.plan);
  ASSERT_EQ(solution.value.rfind("full block ", 0), 0U) << solution.value;
  const int layers = std::stoi(solution.value.substr(11));
  EXPECT_TRUE(fits(with_layers(layers)));
  for (int fewer = 1; fewer < layers; ++fewer) EXPECT_FALSE(fits(with_layers(fewer))) << fewer;
  const JsonDocument json = JsonDocument::parse(to_json(solution), "solution");
  EXPECT_EQ(json.root()["value"].text(), solution.value);
  EXPECT_TRUE(json.root()["fits"].boolean());
}

TEST(Sweep, PointsAreEstimatesInOrder) {
  const SearchRequest request = gpt2_on_one({{"seq", "1024"}}, {{"micro_batch", {"1", "2", "4"}}, {"recompute", {"none", "full"}}});
  const Sweep points = sweep(request);
  ASSERT_EQ(points.points.size(), 6U);
  for (const SweepPoint& point : points.points) {
    ASSERT_TRUE(point.report) << point.refusal;
    Strategy strategy;
    auto options = point.plan.options;
    options.emplace_back("seq", "1024");
    set_options(strategy, options);
    const Report report = estimate(request.model, request.cluster, strategy);
    EXPECT_EQ(point.report->time.step_seconds.expected, report.time.step_seconds.expected);
    EXPECT_EQ(point.report->worst_rank().memory.reserved, report.worst_rank().memory.reserved);
  }
  EXPECT_EQ(points.points[0].plan.options[0].second, "1");
  EXPECT_EQ(points.points[5].plan.options[0].second, "4");
  const std::string csv = to_csv(points);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 7);  // a head and a line each
  EXPECT_EQ(csv.rfind("micro_batch,recompute,verdict,", 0), 0U);
  EXPECT_EQ(JsonDocument::parse(to_json(points), "sweep").root()["points"].size(), 6U);
}

/// What estimate refuses is a point with its reason; commas within a value do not make columns.
TEST(Sweep, RefusedPointsSayWhy) {
  const Sweep points = sweep(gpt2_on_one({{"seq", "1024"}, {"framework", "megatron-core"}},
                                         {{"tp", {"1", "7"}}, {"recompute", {"none", "selective:core_attn,mlp"}}}));
  ASSERT_EQ(points.points.size(), 4U);
  EXPECT_TRUE(points.points[0].report);
  EXPECT_FALSE(points.points[2].report);
  EXPECT_FALSE(points.points[2].refusal.empty());
  EXPECT_NE(to_csv(points).find(",\"selective:core_attn,mlp\","), std::string::npos);
  EXPECT_NE(to_text(points).find("refused: "), std::string::npos);
}

TEST(Sweep, TooManyPointsAreRefusedWithTheirNumber) {
  SearchAxis many{"seq", {}};
  for (int i = 1; i <= 4000; ++i) many.values.push_back(std::to_string(i));
  try {
    (void)sweep(gpt2_on_one({}, {many, {"micro_batch", {"1", "2", "3", "4", "5", "6"}}}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.message()).find("24000 points"), std::string::npos);
  }
}

/// Each step stands on those before it; a key that is said again replaces what it was.
TEST(Waterfall, TechniquesAddUp) {
  const SearchRequest request = gpt2_on_one({{"micro_batch", "4"}, {"seq", "1024"}});
  const std::vector<Technique> steps = waterfall(request, {"--recompute full", "--micro-batch 8", "--recompute none"});
  ASSERT_EQ(steps.size(), 4U);
  const auto seconds = [&](const std::vector<std::pair<std::string, std::string>>& options) {
    Strategy strategy;
    set_options(strategy, options);
    return estimate(request.model, request.cluster, strategy).time.step_seconds.expected;
  };
  EXPECT_EQ(steps[0].report.time.step_seconds.expected, seconds({{"micro_batch", "4"}, {"seq", "1024"}}));
  EXPECT_EQ(steps[1].report.time.step_seconds.expected, seconds({{"micro_batch", "4"}, {"seq", "1024"}, {"recompute", "full"}}));
  EXPECT_EQ(steps[2].report.time.step_seconds.expected, seconds({{"micro_batch", "8"}, {"seq", "1024"}, {"recompute", "full"}}));
  EXPECT_EQ(steps[3].report.time.step_seconds.expected, seconds({{"micro_batch", "8"}, {"seq", "1024"}, {"recompute", "none"}}));
  const std::string text = to_text(steps);
  EXPECT_NE(text.find("then --micro-batch 8"), std::string::npos);
  EXPECT_NE(text.find(to_string(Seconds(steps[1].report.time.step_seconds.low)) + " to " + to_string(Seconds(steps[1].report.time.step_seconds.high))), std::string::npos) << text;
  EXPECT_NE(to_text(waterfall(request, {"--recompute none"})).find("a token takes as long as before"), std::string::npos);
  const std::string far = to_text(waterfall(request, {"--seq 16"}));  // the host alone decides such a step
  EXPECT_EQ(far.find("as long as before"), std::string::npos) << far;
  EXPECT_EQ(JsonDocument::parse(to_json(steps), "waterfall").root()["steps"].size(), 4U);
}

TEST(Waterfall, WrongFlagsAreNamed) {
  const SearchRequest request = gpt2_on_one({{"micro_batch", "4"}, {"seq", "1024"}});
  for (const char* wrong : {"", "recompute full", "--recompute", "--no-such-key 3"})
    EXPECT_THROW(waterfall(request, {wrong}), Error) << wrong;
}

}  // namespace
}  // namespace plimsoll

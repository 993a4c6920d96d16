// Device time of steps and of rollouts.
#include <gtest/gtest.h>

#include "plimsoll/cost.hpp"
#include "plimsoll/engine.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

using Said = std::vector<std::pair<std::string, std::string>>;

EnginePlan plan_of(const std::string& model, const std::string& on, Said said) {
  said.emplace_back("max_model_len", "8192");
  return plan_engine(load_model(model), parse_cluster(on), engine_setting(said));
}

// One token of Llama-3.1-8B reads its layers and its head once: 7.505e9 of 8.030e9 parameters (the embedding's rows are looked up), 15.0 GB
// at 3.06 TB/s, 4.9 ms, and what stands between kernels.
TEST(EngineTimes, OneSequenceReadsTheWeights) {
  const EnginePlan plan = plan_of("llama-3.1-8b", "1xh100-sxm", {{"engine", "vllm@0.11"}});
  const Accelerator device = parse_cluster("1xh100-sxm").accelerator;
  const double read = 15.01e9 / (device.memory_bandwidth.value.value * device.memory_efficiency.value);
  ASSERT_FALSE(plan.decode.empty());
  EXPECT_EQ(plan.decode.front().sequences, 1);
  EXPECT_GT(plan.decode.front().step.value, read);
  EXPECT_LT(plan.decode.front().step.value, 1.35 * read);
}

// 64 sequences of 2,048 tokens keep 64 x 2,048 x 131,072 B = 17.2 GB.
TEST(EngineTimes, TheCacheIsReadBesideThem) {
  const EnginePlan plan = plan_of("llama-3.1-8b", "1xh100-sxm", {{"engine", "vllm@0.11"}});
  const Accelerator device = parse_cluster("1xh100-sxm").accelerator;
  const double cache = 17.18e9 / (device.memory_bandwidth.value.value * device.memory_efficiency.value);
  ASSERT_GT(plan.decode.size(), 3u);
  EXPECT_EQ(plan.decode[3].sequences, 64);
  EXPECT_NEAR((plan.decode[3].step - plan.decode[0].step).value, cache, 0.25 * cache);
  const EnginePlan narrow = plan_of("llama-3.1-8b", "1xh100-sxm", {{"engine", "vllm@0.11"}, {"kv_cache_dtype", "fp8"}});
  EXPECT_NEAR((plan.decode[3].step - narrow.decode[3].step).value, cache / 2, 0.15 * cache);
}

TEST(EngineTimes, ARolloutDrains) {
  const Said base{{"engine", "vllm@0.11"}, {"completions", "256"}, {"max_num_seqs", "256"}};
  Said even = base, uneven = base, waves = base, two = base;
  even.emplace_back("lengths", "1024");
  uneven.emplace_back("lengths", "256,256,256,3328");  // as many tokens in all
  waves.emplace_back("lengths", "1024");
  waves[2].second = "64";
  two.emplace_back("lengths", "1024");
  const auto time_of = [](const EnginePlan& plan) { return plan.rollout->decoding.value; };
  const EnginePlan same = plan_of("llama-3.1-8b", "1xh100-sxm", even), mixed = plan_of("llama-3.1-8b", "1xh100-sxm", uneven);
  EXPECT_EQ(same.rollout->steps, 1024);
  EXPECT_EQ(same.rollout->largest_batch, 256);
  EXPECT_EQ(mixed.rollout->steps, 3328);
  EXPECT_GT(time_of(mixed), 1.5 * time_of(same)) << "the last sequences read the weights for few";
  const EnginePlan fewer = plan_of("llama-3.1-8b", "1xh100-sxm", waves);
  EXPECT_EQ(fewer.rollout->steps, 4 * 1024);
  EXPECT_GT(time_of(fewer), time_of(same));
  const EnginePlan both = plan_of("llama-3.1-8b", "2xh100-sxm", two);
  EXPECT_EQ(both.rollout->engines, 2);
  EXPECT_LT(time_of(both), time_of(same));
}

TEST(EngineTimes, GroupsShareTheirPrompt) {
  const Said base{{"engine", "vllm@0.11"}, {"completions", "256"}, {"prompt_tokens", "2048"}};
  Said grouped = base;
  grouped.emplace_back("group", "8");
  const EnginePlan each = plan_of("llama-3.1-8b", "1xh100-sxm", base), shared = plan_of("llama-3.1-8b", "1xh100-sxm", grouped);
  EXPECT_NEAR(each.rollout->prompts.value / shared.rollout->prompts.value, 8, 1e-9);
  EXPECT_GT(shared.rollout->largest_batch, each.rollout->largest_batch);
}

TEST(EngineTimes, WhatIsNotPricedIsSaid) {
  const EnginePlan plan = plan_of("llama-3.1-8b", "1xh100-sxm", {{"weights", "int4"}});
  EXPECT_TRUE(plan.decode.empty());
  EXPECT_NE(plan.assumed.back().find("int4"), std::string::npos);
  EXPECT_THROW(plan_of("llama-3.1-8b", "1xh100-sxm", {{"weights", "int4"}, {"completions", "8"}}), Error);
  EXPECT_THROW(plan_of("llama-3.1-8b", "1xh100-sxm", {{"completions", "8"}, {"lengths", "9000"}}), Error);
  EXPECT_THROW(plan_of("llama-3.1-8b", "1xh100-sxm", {{"completions", "8"}, {"lengths", "12,,13"}}), Error);
}

}  // namespace
}  // namespace plimsoll

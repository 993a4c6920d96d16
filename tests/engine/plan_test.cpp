// The rules of an engine's memory, each on the smallest setting that shows it.
#include <gtest/gtest.h>

#include "engine/parts.hpp"
#include "plimsoll/engine.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

using Said = std::vector<std::pair<std::string, std::string>>;

EnginePlan plan_of(const std::string& model, const std::string& on, const Said& said) {
  return plan_engine(load_model(model), parse_cluster(on), engine_setting(said));
}

std::string error_of(const std::string& model, const std::string& on, const Said& said) {
  try {
    (void)plan_of(model, on, said);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(EnginePlan, PartsAndCacheAreTheBudget) {
  const EnginePlan plan = plan_of("qwen2.5-7b", "1xh100-sxm", {{"engine", "vllm@0.11"}, {"gpu_memory_utilization", "0.5"}});
  EXPECT_EQ(plan.budget, plan.weights + plan.activation_peak + plan.outside.expected + plan.cache) << "graphs come on top before 0.20";
  EXPECT_FALSE(plan.graphs_in_budget);
  const EnginePlan newer = plan_of("qwen2.5-7b", "1xh100-sxm", {{"engine", "vllm@0.22"}, {"gpu_memory_utilization", "0.5"}});
  EXPECT_EQ(newer.budget, newer.weights + newer.activation_peak + newer.outside.expected + newer.graphs.expected + newer.cache);
}

TEST(EnginePlan, EarlyReleasesCountAllThatIsInUse) {
  const Said said{{"engine", "vllm@0.8.5"}, {"gpu_memory_utilization", "0.5"}};
  Said crowded = said;
  crowded.emplace_back("held_by_others", "8 GiB");
  const EnginePlan alone = plan_of("qwen2.5-7b", "1xh100-sxm", said), beside = plan_of("qwen2.5-7b", "1xh100-sxm", crowded);
  EXPECT_EQ(alone.budget, alone.weights + alone.activation_peak + alone.outside.expected + alone.context.expected + alone.cache);
  EXPECT_EQ(alone.cache - beside.cache, 8_GiB);
  Said later = crowded;
  later.front().second = "vllm@0.9.2";
  EXPECT_TRUE(plan_of("qwen2.5-7b", "1xh100-sxm", later).refused.empty());
  later[1].second = "0.9";
  EXPECT_NE(plan_of("qwen2.5-7b", "1xh100-sxm", later).refused.find("free memory"), std::string::npos);
}

// Llama-3.1-8B: 32 layers x 8 key heads x 128 x 2 x 2 bytes = 131,072 B a token; with 4 key heads a rank half of it, in 8 bits a quarter.
TEST(EnginePlan, PagesFollowHeadsAndTypes) {
  const auto page = [](const Said& said) { return plan_of("llama-3.1-8b", "16xh100-sxm", said).groups.front().page; };
  EXPECT_EQ(page({}), Bytes(16 * 131072 / 32));
  EXPECT_EQ(page({{"tp", "2"}}), Bytes(16 * 131072 / 64));
  EXPECT_EQ(page({{"tp", "16"}}), page({{"tp", "8"}})) << "fewer heads than ranks are copied";
  EXPECT_EQ(page({{"kv_cache_dtype", "fp8"}}), Bytes(16 * 131072 / 64));
  EXPECT_EQ(page({{"block_size", "32"}}), Bytes(32 * 131072 / 32));
  // DeepSeek-V3: 512 + 64 of a latent, on every rank.
  EXPECT_EQ(plan_of("deepseek-v3", "8xh200", {{"tp", "8"}, {"weights", "fp8-block"}}).groups.front().page, Bytes(16 * 576 * 2));
}

// gpt-oss-20b: 12 layers of a window of 128 tokens, 12 of all: two tables of 12 layers. A request of 4,096 tokens in steps of 2,048 has
// 256 blocks of one table, and of the other those of 127 + 2,048 tokens, 136, and one more.
TEST(EnginePlan, WindowsHaveATableOfTheirOwn) {
  const EnginePlan plan =
      plan_of("gpt-oss-20b", "1xh100-sxm", {{"engine", "vllm@0.11"}, {"weights", "mxfp4"}, {"max_num_batched_tokens", "2048"}});
  ASSERT_EQ(plan.groups.size(), 2u);
  const engine::BlockPool pool(plan.groups, plan.setting, true);
  EXPECT_EQ(pool.bytes_of_block(), plan.groups.front().page * 12);
  EXPECT_EQ(pool.blocks_of(4096), 256 + 136 + 1);
  EXPECT_EQ(pool.tokens(1000), 1000 / 2 * 16);
  const engine::BlockPool all(plan.groups, plan.setting, false);
  EXPECT_EQ(all.bytes_of_block(), plan.groups.front().page * 24);
  EXPECT_EQ(all.blocks_of(4096), 256);
}

TEST(EnginePlan, ARequestThatDoesNotFitNamesTheLongest) {
  const EnginePlan plan = plan_of("llama-3.1-8b", "1xrtx4090", {{"engine", "vllm@0.11"}});
  EXPECT_NE(plan.refused.find("131072"), std::string::npos) << plan.refused;
  EXPECT_GT(plan.longest, 16384);
  const EnginePlan shorter =
      plan_of("llama-3.1-8b", "1xrtx4090", {{"engine", "vllm@0.11"}, {"max_model_len", std::to_string(plan.longest)}});
  EXPECT_TRUE(shorter.refused.empty()) << shorter.refused;
  EXPECT_FALSE(plan_of("llama-3.1-8b", "1xrtx4090", {{"engine", "vllm@0.11"}, {"max_model_len", std::to_string(plan.longest + 16)}})
                   .refused.empty());
}

TEST(EnginePlan, SleepGivesBackWeightsAndCache) {
  const EnginePlan plan = plan_of("qwen2.5-7b", "1xh100-sxm", {{"engine", "vllm@0.11"}, {"enable_sleep_mode", "true"}});
  ASSERT_EQ(plan.sleep.size(), 2u);
  EXPECT_EQ(plan.sleep[0].freed, plan.weights + plan.cache);
  EXPECT_EQ(plan.sleep[0].to_host, plan.weights);
  EXPECT_EQ(plan.sleep[1].to_host, 0_B);
  EXPECT_EQ(plan.device, plan.sleep[0].freed + plan.sleep[0].stays + plan.activation_peak);
}

TEST(EnginePlan, SglangsFractionHoldsWeightsAndCache) {
  const EnginePlan plan = plan_of("qwen3-14b", "4xrtx3090", {{"engine", "sglang@0.5"}, {"tp", "4"}, {"mem_fraction_static", "0.8"}});
  const Bytes free = plan.total - plan.context.expected - plan.outside.expected;
  EXPECT_EQ(plan.cache + plan.weights, Bytes(static_cast<std::int64_t>(static_cast<double>(free.count) * 0.8)));
  const EnginePlan small = plan_of("qwen3-14b", "4xrtx3090", {{"engine", "sglang@0.5"}, {"tp", "4"}, {"mem_fraction_static", "0.2"}});
  EXPECT_NE(small.refused.find("the smallest fraction"), std::string::npos) << small.refused;
}

// A share that leaves less than graphs and context take ends in an error of memory once it has started.
TEST(EnginePlan, AShareThatLeavesNoRoomIsARisk) {
  const EnginePlan full = plan_of("qwen2.5-7b", "1xh100-sxm", {{"engine", "vllm@0.11"}, {"gpu_memory_utilization", "0.99"}});
  EXPECT_TRUE(full.refused.empty()) << full.refused;
  EXPECT_GT(full.device, full.total);
  EXPECT_EQ(full.risks.size(), 1u);
  EXPECT_TRUE(plan_of("qwen2.5-7b", "1xh100-sxm", {{"engine", "vllm@0.11"}}).risks.empty());
}

TEST(EnginePlan, EagerLayersKeepTheirArguments) {
  const Said graph{{"engine", "vllm@0.11"}, {"max_num_seqs", "1"}, {"max_num_batched_tokens", "16384"}};
  Said eager = graph;
  eager.emplace_back("enforce_eager", "true");
  const EnginePlan compiled = plan_of("qwen2.5-7b", "1xh100-sxm", graph), kept = plan_of("qwen2.5-7b", "1xh100-sxm", eager);
  // Hidden states of 16,384 x 3,584 in 16 bits: the layer's caller holds one, the layer another, and gate and up stay beside their product.
  EXPECT_GT(kept.activation_peak - compiled.activation_peak, Bytes(2 * 16384 * 3584 * 2));
  EXPECT_EQ(kept.graphs.expected, 0_B);
}

TEST(EnginePlan, PipelinesAndFormats) {
  const EnginePlan whole = plan_of("llama-3.1-70b", "8xh100-sxm", {{"tp", "4"}}),
                   halves = plan_of("llama-3.1-70b", "8xh100-sxm", {{"tp", "4"}, {"pp", "2"}});
  EXPECT_GT(halves.tokens, 2 * whole.tokens);
  EXPECT_LT(halves.weights.gib(), 0.55 * whole.weights.gib());
  const EnginePlan narrow = plan_of("llama-3.1-70b", "8xh100-sxm", {{"tp", "4"}, {"weights", "int4"}});
  EXPECT_NEAR(narrow.weights.gib(), whole.weights.gib() * 0.28, 0.7);
}

TEST(EnginePlan, WhatContradictsIsNamed) {
  EXPECT_NE(error_of("llama-3.1-8b", "4xh100-sxm", {{"tp", "3"}}).find("32 attention heads"), std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "2xh100-sxm", {{"tp", "4"}}).find("4 ranks"), std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "1xh100-sxm", {{"gpu_memory_utilization", "1.5"}}).find("share"), std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "1xh100-sxm", {{"gpu_memory_utilization", "nan"}}).find("share"), std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "1xh100-sxm", {{"mem_fraction_static", "0.5"}}).find("gpu_memory_utilization"), std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "1xh100-sxm", {{"engine", "vlm"}}).find("vllm"), std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "1xh100-sxm", {{"engine", "vllm@0.2.5"}}).find("0.6.4"), std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "1xh100-sxm", {{"engine", "vllm@0.11"}, {"runner", "v0"}}).find("runner"), std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "1xh100-sxm", {{"weights", "fp9"}}).find("fp8"), std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "1xh100-sxm", {{"max_model_len", "200000"}}).find("131072"), std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "1xh100-sxm", {{"max_num_batched_tokens", "64"}, {"max_num_seqs", "128"}}).find("128 sequences"),
            std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "1xh100-sxm", {{"held_by_others", "900 GiB"}}).find("900.00 GiB"), std::string::npos);
  EXPECT_NE(error_of("llama-3.1-8b", "1xh100-sxm", {{"max_modellen", "64"}}).find("max_model_len"), std::string::npos);
  EXPECT_NE(error_of("nemotron-h-56b", "8xh100-sxm", {{"tp", "8"}}).find("recurrent"), std::string::npos);
  EXPECT_NE(error_of("bert-base-uncased", "1xh100-sxm", {}).find("causal"), std::string::npos);
  EXPECT_NE(error_of("t5-base", "1xh100-sxm", {}).find("causal"), std::string::npos);
}

TEST(EnginePlan, EveryShippedDecoderIsPlannedOrRefusedByName) {
  int planned = 0;
  for (const std::string& name : shipped_models()) {
    const Model model = load_model(name);
    try {
      const EnginePlan plan = plan_engine(model, parse_cluster("8xh200"), engine_setting({{"max_num_batched_tokens", "2048"}}));
      EXPECT_GT(plan.weights, 0_B) << name;
      EXPECT_GT(plan.activation_peak, 0_B) << name;
      ++planned;
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::internal) << name << ": " << error.what();
    }
  }
  EXPECT_GT(planned, 90);
}

}  // namespace
}  // namespace plimsoll

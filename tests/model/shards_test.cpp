#include "plimsoll/shards.hpp"

#include <gtest/gtest.h>

#include <string>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

// Megatron-LM pads to a multiple of 128 · t.
TEST(Shards, VocabularyIsPadded) {
  EXPECT_EQ(padded_vocabulary(50257, 1), 50304);
  EXPECT_EQ(padded_vocabulary(50257, 8), 51200);
  EXPECT_EQ(padded_vocabulary(128256, 8), 129024);
  EXPECT_EQ(padded_vocabulary(32000, 8), 32768);
}

// Llama-3-70B: 855,638,016 matrix weights per layer, an eighth of them and two norms of 8,192 per rank: 106,971,136. Four stages of 20
// layers: stage 0 adds 129,024 · 8,192 / 8 rows of the embedding, stage 3 as many of the head and the final norm.
TEST(Shards, Llama3_70BOverTensorAndPipelineRanks) {
  const Model model = load_model("llama-3-70b");
  const ShardSpec spec{.tp = 8, .pp = 4, .vocabulary_multiple = 128};
  EXPECT_EQ(rank_parameters(model, spec, 1), 20 * 106971136LL);
  EXPECT_EQ(rank_parameters(model, spec, 0), 2271543296);
  EXPECT_EQ(rank_parameters(model, spec, 3), 2271551488);
}

// Mixtral-8x7B: 1,605,636,096 dense and 45,097,156,608 in experts, of which a rank of eight holds one expert per layer.
TEST(Shards, MixtralOverExpertRanks) { EXPECT_EQ(rank_parameters(load_model("mixtral-8x7b"), {.ep = 8}), 1605636096 + 45097156608 / 8); }

TEST(Shards, WholeModelIsTheSumOfNothingCut) {
  for (const char* name : {"llama-3.1-8b", "gpt2", "mixtral-8x7b", "deepseek-v3", "falcon-40b"}) {
    const Model model = load_model(name);
    EXPECT_EQ(rank_parameters(model, {}), model.parameters()) << name;
  }
}

struct MegatronRow {
  const char* model;
  ShardSpec spec;
  std::int64_t stage, parameters;
};

// Parameters of the rank's own model in Megatron-core 0.16.1 (local layers), vocabulary padded to 128 · t.
TEST(Shards, AgreeWithMegatronCore) {
  const auto cut = [](std::int64_t tp, std::int64_t pp = 1, std::int64_t vp = 1) {
    return ShardSpec{.tp = tp, .pp = pp, .vp = vp, .vocabulary_multiple = 128};
  };
  const std::vector<MegatronRow> rows = {
      {"llama-3.1-8b", cut(1), 0, 8030261248},       {"llama-3.1-8b", cut(2), 0, 4015263744},
      {"llama-3.1-8b", cut(4), 0, 2008289280},       {"llama-3.1-8b", cut(8), 0, 1004802048},
      {"llama-3.1-8b", cut(2, 2), 0, 2007629824},    {"llama-3.1-8b", cut(2, 2), 1, 2007633920},
      {"llama-3.1-8b", cut(2, 4, 2), 0, 1135149056}, {"llama-3.1-8b", cut(2, 4, 2), 1, 872480768},
      {"llama-3.1-8b", cut(2, 4, 2), 3, 1135153152}, {"llama-3.1-8b", cut(1, 4), 0, 2270232576},
      {"llama-3.1-8b", cut(1, 4), 2, 1744896000},    {"llama-3.2-1b", cut(1), 0, 1235814400},
  };
  for (const auto& row : rows)
    EXPECT_EQ(rank_parameters(load_model(row.model), row.spec, row.stage), row.parameters)
        << row.model << " t" << row.spec.tp << " p" << row.spec.pp << " stage " << row.stage;
}

// The same for a GPT of 24 layers of 2,048 with 50,257 tokens, tied: the last of several stages holds a second copy of the embedding.
TEST(Shards, AgreeWithMegatronCoreOnATiedHead) {
  const Model model =
      parse_model(R"({"model_type": "gpt2", "n_embd": 2048, "n_layer": 24, "n_head": 16, "n_positions": 2048})", "gpt", "gpt");
  const auto rank = [&](std::int64_t tp, std::int64_t pp, std::int64_t stage) {
    return rank_parameters(model, {.tp = tp, .pp = pp, .vocabulary_multiple = 128}, stage);
  };
  EXPECT_EQ(rank(1, 1, 0), 1315819520);
  EXPECT_EQ(rank(2, 1, 0), 660287488);
  EXPECT_EQ(rank(8, 1, 0), 168638464);
  EXPECT_EQ(rank(1, 2, 0), 711516160);
  EXPECT_EQ(rank(1, 2, 1), 707325952);
  EXPECT_EQ(rank(1, 4, 1), 302149632);
}

// Eight experts of 5,632 in 16 layers of 2,048: over 8 expert ranks; over 4 with each expert cut by two tensor ranks.
TEST(Shards, AgreeWithMegatronCoreOnExperts) {
  const Model model = parse_model(R"({"model_type": "mixtral", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16,
      "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32000})",
                                  "moe", "moe");
  EXPECT_EQ(rank_parameters(model, {.ep = 8, .vocabulary_multiple = 128}), 886376448);
  EXPECT_EQ(rank_parameters(model, {.tp = 2, .ep = 4, .vocabulary_multiple = 128}), 720177152);
}

// Four key-value heads of 128 on eight ranks: every rank holds one of them, queries are cut in eight.
TEST(Shards, FewKeyValueHeadsAreCopied) {
  const Model model = load_model("qwen2-7b");  // 28 heads, 4 key-value heads
  const auto local = [&](const std::string& name, std::int64_t tp) {
    for (const auto& block : model.blocks)
      for (const auto* tensor : block.parameter_list())
        if (tensor->name == name) return shard_elements(*tensor, {.tp = tp});
    return std::int64_t{-1};
  };
  EXPECT_EQ(local("self_attn.k_proj.weight", 4), 128 * 3584);
  EXPECT_EQ(local("self_attn.k_proj.weight", 28), 128 * 3584);
  EXPECT_EQ(local("self_attn.q_proj.weight", 28), 128 * 3584);
  EXPECT_EQ(local("self_attn.k_proj.bias", 28), 128);
}

// Megatron-core cuts a projection evenly whatever its heads: 4 key heads of 128 on eight ranks are 64 rows each.
TEST(Shards, FewKeyValueHeadsAreSplitWhereAFrameworkGathersTheirProducts) {
  const Model model = load_model("qwen2-7b");  // 28 heads, 4 key-value heads of 128, hidden size 3584
  for (const auto& block : model.blocks)
    for (const auto* tensor : block.parameter_list())
      if (tensor->name == "self_attn.k_proj.weight")
        EXPECT_EQ(shard_elements(*tensor, {.tp = 8, .splits_heads = true}), 4 * 128 / 8 * 3584);
}

TEST(Shards, WhatDoesNotComeOutEvenIsAnError) {
  EXPECT_THROW(rank_parameters(load_model("llama-3.1-8b"), {.tp = 3}), Error);
  EXPECT_THROW(rank_parameters(load_model("llama-3.1-8b"), {.pp = 5}), Error);
  EXPECT_THROW(rank_parameters(load_model("mixtral-8x7b"), {.ep = 3}), Error);
  EXPECT_THROW(rank_parameters(load_model("llama-3.1-8b"), {.pp = 4}, 4), Error);
}

}  // namespace
}  // namespace plimsoll

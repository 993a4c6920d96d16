// PEFT's methods beside LoRA: what is trained where the user says nothing, and how many virtual tokens a run's parameters mean.
#include <gtest/gtest.h>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll {
namespace {

Model decoder(const char* type) {
  Model model;
  model.model_type = type;
  model.task = Model::Task::causal_lm;
  model.layers = 28;
  model.heads = 24;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.hidden_size = 3072;
  model.max_positions = 131072;
  return model;
}

Cluster one_gpu() {
  Cluster cluster;
  cluster.nodes = 1;
  cluster.gpus_per_node = 1;
  return cluster;
}

Peft resolved(const char* json, const char* type = "llama") { return *resolve(parse_strategy(json, "s"), decoder(type), one_gpu()).peft; }

std::string error_of(const char* json, const char* type = "llama") {
  try {
    resolved(json, type);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The tables of peft/utils/constants.py.
TEST(Peft, TrainsWhatItsTablesName) {
  const Peft scaled = resolved(R"({"task": "ia3", "micro_batch": 4, "seq_len": 768})");
  EXPECT_EQ(scaled.targets, (std::vector<std::string>{"k_proj", "v_proj", "down_proj"}));
  EXPECT_EQ(scaled.feedforward, std::vector<std::string>{"down_proj"});
  const Peft norms = resolved(R"({"task": "ln_tuning", "micro_batch": 4, "seq_len": 768})", "qwen2");
  EXPECT_EQ(norms.targets, std::vector<std::string>{"post_attention_layernorm"});
}

// Published: prompt tuning of Llama-3.2-3B trains 614,400 = 200 · 3072 parameters. P-tuning's encoder, as wide as the model, has
// 3 · (3072² + 3072) beside 20 · 3072.
TEST(Peft, VirtualTokensFollowFromTrainableParameters) {
  EXPECT_EQ(resolved(R"({"task": "prompt_tuning", "trainable_params": 614400, "micro_batch": 4, "seq_len": 768})").virtual_tokens, 200);
  EXPECT_EQ(resolved(R"({"task": "p_tuning", "trainable_params": 28382208, "micro_batch": 4, "seq_len": 768})").virtual_tokens, 20);
}

TEST(Peft, WhatIsMissingIsSaid) {
  EXPECT_NE(error_of(R"({"task": "prompt_tuning", "micro_batch": 4, "seq_len": 768})").find("virtual tokens"), std::string::npos);
  EXPECT_NE(error_of(R"({"task": "prompt_tuning", "trainable_params": 5000, "micro_batch": 4, "seq_len": 768})").find("5000"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"task": "prefix_tuning", "micro_batch": 4, "seq_len": 768})").find("prefix tuning"), std::string::npos);
  EXPECT_NE(error_of(R"({"task": "ia3", "micro_batch": 4, "seq_len": 768})", "olmo2").find("olmo2"), std::string::npos);
  EXPECT_NE(error_of(R"({"task": "ia3", "lora": {"r": 8, "target_modules": ["q_proj"]}, "micro_batch": 4, "seq_len": 768})").find("low-rank"),
            std::string::npos);
}

}  // namespace
}  // namespace plimsoll

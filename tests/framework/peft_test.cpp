// PEFT's methods beside LoRA: what is trained where the user says nothing, and how many virtual tokens a run's parameters mean.
#include "framework/peft.hpp"

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

// update_layer made adapters in the type of the layer's weights from 0.7 on; since 0.12 autocast_adapter_dtype makes them fp32, as they
// were before. Beside quantised weights they are fp32 in any release.
TEST(Peft, AdaptersHaveTheTypeThatTheirReleaseGives) {
  const auto type = [](const std::string& more) {
    const std::string json =
        R"({"framework": "transformers", "task": "lora", "lora": {"r": 8, "target_modules": ["q_proj"]}, "param_dtype": "bf16",
                                 "micro_batch": 1, "seq_len": 64)" +
        more + "}";
    return resolve(parse_strategy(json, "s"), decoder("llama"), one_gpu()).lora->adapter_dtype;
  };
  EXPECT_EQ(type(R"(, "releases": {"peft": "0.6.2"})"), DType::fp32);
  EXPECT_EQ(type(R"(, "releases": {"peft": "0.7"})"), DType::bf16);
  EXPECT_EQ(type(R"(, "releases": {"peft": "0.11.1"})"), DType::bf16);
  EXPECT_EQ(type(R"(, "releases": {"peft": "0.12"})"), DType::fp32);
  EXPECT_EQ(type(R"(, "releases": {"peft": "0.7"}, "base_weights": "nf4")"), DType::fp32);
  EXPECT_EQ(type(""), DType::fp32);
}

TEST(Peft, WhatIsMissingIsSaid) {
  EXPECT_NE(error_of(R"({"task": "prompt_tuning", "micro_batch": 4, "seq_len": 768})").find("virtual tokens"), std::string::npos);
  EXPECT_NE(error_of(R"({"task": "prompt_tuning", "trainable_params": 5000, "micro_batch": 4, "seq_len": 768})").find("5000"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"task": "prefix_tuning", "micro_batch": 4, "seq_len": 768})").find("prefix tuning"), std::string::npos);
  EXPECT_NE(error_of(R"({"task": "ia3", "micro_batch": 4, "seq_len": 768})", "olmo2").find("olmo2"), std::string::npos);
  EXPECT_NE(
      error_of(R"({"task": "ia3", "lora": {"r": 8, "target_modules": ["q_proj"]}, "micro_batch": 4, "seq_len": 768})").find("low-rank"),
      std::string::npos);
}

Model mixture(const char* type) {
  Model model = decoder(type);
  Block layer;
  layer.name = "model.layers";
  layer.role = Block::Role::decoder;
  layer.repeat = 28;
  layer.moe.emplace();
  layer.moe->hidden = 3072;
  layer.moe->experts = 8;
  layer.moe->expert_intermediate = 512;
  for (const char* name : {"self_attn.q_proj", "self_attn.o_proj"}) {
    Operator linear;
    linear.name = name;
    linear.kind = OperatorKind::linear;
    layer.operators.push_back(linear);
  }
  model.blocks.push_back(layer);
  return model;
}

// _convert_peft_config_moe: of Mixtral and of what transformers maps to qwen2_moe, but not of that itself.
TEST(Peft, NamesOfAMixturesLinearsAreParameters) {
  const auto all = framework::mixture_targets(mixture("qwen3_moe"), {"all-linear"});
  EXPECT_TRUE(all.router && all.gate_up && all.down);
  EXPECT_EQ(all.linears, (std::vector<std::string>{"q_proj", "o_proj"}));
  const auto listed = framework::mixture_targets(mixture("mixtral"), {"q_proj", "w1", "block_sparse_moe.experts.w3"});
  EXPECT_TRUE(listed.gate_up && !listed.router && !listed.down);
  EXPECT_EQ(listed.linears, std::vector<std::string>{"q_proj"});
  EXPECT_FALSE(framework::mixture_targets(mixture("qwen2_moe"), {"q_proj", "gate_proj"}).any());
  EXPECT_FALSE(framework::mixture_targets(mixture("olmoe"), {"q_proj", "o_proj"}).any());
}

TEST(Peft, HalfOfAFusedParameterIsAnError) {
  const auto code_of = [](const char* type, const char* target) {
    try {
      framework::mixture_targets(mixture(type), {target});
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code_of("qwen3_moe", "up_proj"), ErrorCode::bad_input);
  EXPECT_EQ(code_of("deepseek_v3", "down_proj"), ErrorCode::refused);
}

// Per layer, of rank r: router r (H + E); gate and up, one parameter of rank 2 r, E · 2 r (H + 2 I); down E · r (I + H).
TEST(Peft, ElementsOfAMixturesAdapters) {
  const Model model = mixture("olmoe");
  EXPECT_EQ(framework::mixture_adapter_elements(model, framework::mixture_targets(model, {"all-linear"}), 4),
            28 * 4 * ((3072 + 8) + 2 * 8 * (3072 + 1024) + 8 * (512 + 3072)));
}

}  // namespace
}  // namespace plimsoll

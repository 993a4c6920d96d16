// What a row leaves out, where its model's public config or its source's own launch scripts say it.
#include <gtest/gtest.h>

#include <algorithm>

#include "plimsoll/rows.hpp"

namespace plimsoll {
namespace {

std::string row(const std::string& title, const std::string& model, const std::string& training) {
  return R"({"id": "a", "source": {"title": ")" + title + R"("}, "model": )" + model +
         R"(, "hardware": {"gpu": "A100-SXM4-80GB", "gpus": 1024, "gpus_per_node": 8}, "training": )" + training +
         R"(, "measured": {"step_time_s": 1}})";
}

MeasuredRow read(const std::string& json) {
  const auto rows = parse_rows("[" + json + "]", "rows.json");
  EXPECT_EQ(rows.size(), 1u);
  return rows.front();
}

bool lists(const std::vector<std::string>& all, const std::string& part) {
  return std::any_of(all.begin(), all.end(), [&](const std::string& each) { return each.find(part) != std::string::npos; });
}

const char* const kTraining =
    R"({"framework": "megatron-lm", "seq_len": 2048, "micro_batch": 1, "global_batch": 1024, "precision": "bf16", "tp": 8, "pp": 4, "dp": 32})";

// DeepSeek-V3's table of a launcher says width and depth alone: ranks of the latent attention, experts and widths are the public config's.
// 671,026,404,352 parameters (the checkpoint's 671,026,419,200 with the routers' 58 × 256 correction biases, which are buffers); a cut to 4
// layers keeps the three dense ones and one of 256 experts.
TEST(CompletedRows, DimensionsOfAShippedModel) {
  const MeasuredRow whole =
      read(row("t", R"({"name": "DeepSeek-V3", "hidden_size": 7168, "num_layers": 61, "attention_type": "mla"})", kTraining));
  ASSERT_EQ(whole.refused, "");
  EXPECT_EQ(whole.model->parameters(), 671026404352);
  EXPECT_TRUE(lists(whole.model->assumed, "deepseek-v3"));
  const MeasuredRow cut =
      read(row("t", R"({"name": "DeepSeek-V3", "hidden_size": 7168, "num_layers": 4, "attention_kind": "mla"})", kTraining));
  ASSERT_EQ(cut.refused, "");
  EXPECT_EQ(cut.model->layers, 4);
  const MeasuredRow llama = read(row("t", R"({"name": "Llama-3.1-8B", "hidden_size": 4096, "num_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "mlp": "swiglu", "norm": "rmsnorm", "positions": "rope", "vocab_size": 128256})",
                                     kTraining));
  ASSERT_EQ(llama.refused, "");
  EXPECT_EQ(llama.model->parameters(), 8030261248);
}

// Qwen3-235B-A22B's heads are 128 wide and normed, not 4096 / 64 as width over heads would have it.
TEST(CompletedRows, HeadsOfAShippedModel) {
  const MeasuredRow qwen = read(row("t", R"({"name": "Qwen3-235B-A22B", "hidden_size": 4096, "num_layers": 94, "num_attention_heads": 64,
      "num_key_value_heads": 4, "intermediate_size": 12288, "mlp": "swiglu", "norm": "rmsnorm", "tie_embeddings": false, "positions": "rope",
      "moe": {"experts": 128, "top_k": 8, "expert_intermediate_size": 1536}})",
                                    kTraining));
  ASSERT_EQ(qwen.refused, "");
  EXPECT_EQ(qwen.model->head_dim, 128);
  EXPECT_EQ(qwen.model->parameters(), 235093634560);
}

TEST(CompletedRows, AnotherWidthIsNotThatModel) {
  const MeasuredRow wide = read(row("t", R"({"name": "Llama-3.1-8B", "hidden_size": 5120, "num_layers": 32, "num_attention_heads": 32,
      "mlp": "swiglu", "norm": "rmsnorm", "positions": "rope", "vocab_size": 128256})",
                                    kTraining));
  EXPECT_NE(wide.refused.find("intermediate_size"), std::string::npos) << wide.refused;
}

// Narayanan et al.'s table says no micro-batch; Megatron-LM's examples/sc21/run_table_1.sh does: 76.1B with 2, and 5 of 60 layers in each
// of 3 chunks on 4 stages. What a row says itself stays.
TEST(CompletedRows, RecipesOfPublishedTables) {
  const std::string title =
      "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM (Narayanan et al. 2021), weak scaling";
  const std::string model = R"({"name": "GPT-76.1B", "hidden_size": 10240, "num_layers": 60, "num_attention_heads": 80,
      "num_key_value_heads": 80, "intermediate_size": 40960, "vocab_size": 51200, "mlp": "gelu", "norm": "layernorm", "tie_embeddings": true,
      "positions": "learned", "linear_bias": true})";
  const auto training = [](const std::string& more) {
    return R"({"framework": "megatron-lm", "seq_len": 2048, "global_batch": 1792, "precision": "fp16", "data_parallel": "ddp", "dp": 32, "tp": 8, "pp": 4)" +
           more + "}";
  };
  const MeasuredRow published = read(row(title, model, training("")));
  ASSERT_EQ(published.refused, "");
  EXPECT_EQ(published.strategy.micro_batch, 2);
  EXPECT_EQ(published.strategy.vp, 3);
  EXPECT_TRUE(lists(published.assumed, "run_table_1.sh"));
  EXPECT_EQ(read(row(title, model, training(R"(, "micro_batch": 1)"))).strategy.micro_batch, 1);
  EXPECT_NE(read(row("another table", model, training(""))).refused.find("micro_batch"), std::string::npos);
}

// Whole iterations in one graph: set_full_iter_cg_configs of Megatron-Bridge 0.5.0. Other precisions have none, other models other
// settings.
// Which of a hybrid's layers mix what, and what is in a mixer, is the public config's (56,324,350,464 parameters).
TEST(CompletedRows, HybridsAreThoseOfTheirShippedModel) {
  const MeasuredRow hybrid = read(row("t", R"({"name": "Nemotron-H-56B", "hidden_size": 8192, "num_layers": 118, "num_attention_heads": 64,
      "num_key_value_heads": 8, "intermediate_size": 32768, "vocab_size": 131072, "mlp": "relu2", "norm": "rmsnorm", "positions": "none",
      "tie_embeddings": false, "linear_bias": false, "hybrid": "mamba2+attention"})",
                                      kTraining));
  ASSERT_EQ(hybrid.refused, "");
  EXPECT_EQ(hybrid.model->parameters(), 56324350464);
  const MeasuredRow named = read(row("t", R"j({"name": "Nemotron-3-Nano-30B-A3B (hybrid Mamba-2/attention MoE)"})j", kTraining));
  ASSERT_EQ(named.refused, "");
  EXPECT_EQ(named.model->parameters(), 31577937344);
}

TEST(CompletedRows, RecipesWithConditions) {
  const auto mixture = [](const std::string& name, const std::string& precision, const std::string& more) {
    return read(
        row("NVIDIA Megatron-Bridge performance summary", "{\"name\": \"" + name + "\"}",
            R"({"framework": "megatron-bridge", "seq_len": 4096, "micro_batch": 4, "global_batch": 4096, "tp": 1, "pp": 1, "dp": 1024,
                        "ep": 8, "precision": ")" +
                precision + "\"" + more + "}"));
  };
  const MeasuredRow graphs = mixture("Qwen3-30B-A3B", "mxfp8", R"(, "cuda_graph": "full_iteration:[]")");
  ASSERT_EQ(graphs.refused, "");
  EXPECT_TRUE(graphs.strategy.moe.fused_mlp && *graphs.strategy.moe.a2a_overlap && graphs.strategy.fp8_attention);
  EXPECT_EQ(graphs.strategy.grad_dtype, DType::bf16);
  EXPECT_TRUE(lists(graphs.assumed, "set_full_iter_cg_configs"));
  EXPECT_FALSE(mixture("Qwen3-30B-A3B", "bf16", R"(, "cuda_graph": "full_iteration:[]")").strategy.moe.fused_mlp);
  EXPECT_FALSE(mixture("Qwen3-30B-A3B", "mxfp8", "").strategy.moe.fused_mlp);
  EXPECT_FALSE(mixture("gpt-oss-120b", "mxfp8", R"(, "cuda_graph": "full_iteration:[]")").strategy.fp8_attention);
  EXPECT_FALSE(mixture("Qwen3-30B-A3B", "mxfp8", R"(, "cuda_graph": "full_iteration:[]", "moe_fused_mlp": false)").strategy.moe.fused_mlp);
}

// MLPerf's recipe of adapters exchanges heads where a sequence is cut (cp_comm_type a2a), but in v4.1 on the B200 alone.
TEST(CompletedRows, AdaptersOfMlperfExchangeHeads) {
  const auto adapters = [](const std::string& round, const std::string& cp) {
    return read(row("MLPerf Training " + round + " results", R"({"name": "Llama-2-70B"})",
                    R"({"framework": "nemo", "task": "lora", "lora": {"r": 16}, "seq_len": 8192, "micro_batch": 1, "global_batch": 9, "tp": 1,
                        "pp": 1, "dp": 9, "precision": "bf16", "cp": )" + cp + "}"))
        .strategy.megatron.cp_comm_type;
  };
  EXPECT_EQ(adapters("v5.1", "8"), "a2a");
  EXPECT_EQ(adapters("v5.0", "2"), "a2a");
  EXPECT_NE(adapters("v5.1", "1"), "a2a");
  EXPECT_NE(adapters("v4.1", "2"), "a2a");
}

// The tables of 25.09 say "tokendrop" of every mixture but DeepSeek's on H100; 25.11's drop no token.
TEST(CompletedRows, MixturesOfTheReleasesOfMegatronBridge) {
  const auto mixture = [](const std::string& release) {
    return read(row("NVIDIA Megatron-Bridge performance summary", R"({"name": "Qwen3-235B-A22B"})",
                    R"({"framework": "megatron-bridge", "framework_version": ")" + release +
                        R"(", "seq_len": 4096, "micro_batch": 1, "global_batch": 1024, "tp": 1, "pp": 1, "dp": 1024, "ep": 8,
                           "precision": "fp8"})"));
  };
  const MeasuredRow dropping = mixture("NeMo 25.09 (v0.1.0rc4)");
  ASSERT_EQ(dropping.refused, "");
  EXPECT_EQ(dropping.strategy.moe.capacity_factor, 1.0);
  EXPECT_TRUE(dropping.strategy.moe.pad_to_capacity);
  EXPECT_TRUE(lists(dropping.assumed, "tokendrop"));
  const MeasuredRow dropless = mixture("NeMo 25.11 (v0.2.0)");
  ASSERT_EQ(dropless.refused, "");
  EXPECT_FALSE(dropless.strategy.moe.capacity_factor.has_value());
}

// What Megatron-Bridge's own recipes set for a device, a precision and a release (models/bridge-recipes.json), and no table repeats. DeepSeek-V3 on
// B200 in mxfp8 is in 26.04.01 what its patch release has for pp 8, vp 2 and ep 32 (deepep, exchanges that overlap), and what the release has for pp 16;
// Qwen3-30B-A3B is reached by HybridEP on GB200 from 25.11 on, and by an all-to-all on B200 before 26.02.01. What a row says itself stays.
TEST(CompletedRows, WhatMegatronBridgesRecipesSetForADevice) {
  const auto mixture = [](const std::string& model, const std::string& gpu, const std::string& release, const std::string& shape) {
    std::string json = row("NVIDIA Megatron-Bridge performance summary", R"({"name": ")" + model + R"("})",
                           R"({"framework": "megatron-bridge", "framework_version": "NeMo )" + release +
                               R"(", "seq_len": 4096, "micro_batch": 1, "tp": 1, "precision": "mxfp8", )" + shape + "}");
    json.replace(json.find("A100-SXM4-80GB"), 14, gpu);
    json.replace(json.find("1024, \"gpus_per_node\": 8"), 24, gpu[0] == 'G' ? "256, \"gpus_per_node\": 4" : "256, \"gpus_per_node\": 8");
    MeasuredRow read_row = read(json);
    EXPECT_EQ(read_row.refused, "");
    return read_row.strategy;
  };
  const std::string pipeline = R"("global_batch": 4096, "pp": 8, "vp": 2, "dp": 32, "ep": 32)";
  const Strategy patched = mixture("DeepSeek-V3", "B200-SXM-180GB", "26.04.01 (v0.4.1)", pipeline);
  EXPECT_EQ(patched.moe.dispatcher, "deepep");
  EXPECT_TRUE(patched.moe.a2a_overlap.value_or(false));
  EXPECT_EQ(patched.recompute.modules, (std::vector<std::string>{"mla_up_proj", "mlp"}));
  EXPECT_EQ(patched.pp_layers, (std::vector<int>{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1}));
  const Strategy own = mixture("DeepSeek-V3", "B200-SXM-180GB", "26.04.01 (v0.4.1)", R"("global_batch": 4096, "pp": 16, "dp": 16, "ep": 8)");
  EXPECT_EQ(own.moe.dispatcher, "hybridep");
  EXPECT_FALSE(own.moe.a2a_overlap.value_or(false));
  const std::string whole = R"("global_batch": 512, "pp": 1, "dp": 256, "ep": 8)";
  EXPECT_EQ(mixture("Qwen3-30B-A3B", "GB200-NVL72-186GB", "25.11 (v0.2.0)", whole).moe.dispatcher, "hybridep");
  EXPECT_EQ(mixture("Qwen3-30B-A3B", "B200-SXM-180GB", "26.02 (v0.3.0)", whole).moe.dispatcher, "");
  EXPECT_EQ(mixture("Qwen3-30B-A3B", "B200-SXM-180GB", "26.02.01 (v0.3.1)", whole).moe.dispatcher, "hybridep");
  EXPECT_EQ(mixture("Qwen3-30B-A3B", "GB200-NVL72-186GB", "25.11 (v0.2.0)", whole + R"(, "moe_dispatcher": "alltoall")").moe.dispatcher, "alltoall");
}

// NeMo's and Megatron-Bridge's performance recipes: recipe.peft.target_modules = ['linear_qkv'].
TEST(CompletedRows, AdaptersOfTheLaunchersRecipes) {
  const auto lora = [](const std::string& given) {
    return read(row("t", R"({"name": "Llama-3.1-8B"})",
                    R"({"framework": "nemo", "seq_len": 4096, "micro_batch": 1, "global_batch": 1024, "precision": "bf16", "tp": 1, "pp": 1,
                        "dp": 1024, "lora": )" +
                        given + "}"));
  };
  const MeasuredRow told_nothing = lora(R"({"note": "rank not stated"})");
  ASSERT_EQ(told_nothing.refused, "");
  EXPECT_EQ(told_nothing.strategy.lora->targets, std::vector<std::string>{"linear_qkv"});
  EXPECT_TRUE(lists(told_nothing.assumed, "linear_qkv"));
  EXPECT_EQ(lora(R"({"target_modules": ["linear_proj"]})").strategy.lora->targets, std::vector<std::string>{"linear_proj"});
}

// AWS's adapter carries the Simple protocol alone between nodes (hardware/networks.json); inside a node nothing changes.
TEST(CompletedRows, TheAdapterOfAws) {
  std::string json = row("t", R"({"name": "Llama-3.1-8B"})", kTraining);
  const std::string node = R"("gpus_per_node": 8)";
  json.insert(json.find(node) + node.size(), R"(, "inter_node": "EFA")");
  const MeasuredRow efa = read(json);
  ASSERT_EQ(efa.refused, "");
  const CollectiveLibrary& library = efa.cluster->node.collectives;
  EXPECT_GT(library.ll_max[0].value.value, 0);
  EXPECT_GT(library.ll128_per_channel[0].value.value, 0);
  for (std::size_t nodes : {1, 2}) {
    EXPECT_EQ(library.ll_max[nodes].value.value, 0);
    EXPECT_EQ(library.ll128_per_channel[nodes].value.value, 0);
    EXPECT_GT(library.tree_per_channel[nodes].value.value, 0);
  }
}

// vTrain's single-node rows say "recompute full" and a padded vocabulary as what their reader assumed: its source (50257 rows, no more) has
// the last word. What a row says without that stays, and so does what is said of other rows of that paper.
TEST(CompletedRows, WhatARowOnlyAssumedGivesWay) {
  const auto of = [](const std::string& where, const std::string& assumed) {
    return read(R"j({"id": "a", "source": {"title": "vTrain measured data (MICRO 2024)", "where": "VIA-Research/vTrain@f8dda84: data/)j" +
                where + R"j("}, "model": {"name": "GPT h1024 L24", "hidden_size": 1024, "num_layers": 24, "num_attention_heads": 16,
      "num_key_value_heads": 16, "intermediate_size": 4096, "vocab_size": 51200, "mlp": "gelu", "norm": "layernorm", "tie_embeddings": true,
      "positions": "learned", "linear_bias": true}, "hardware": {"gpu": "A100-80GB-SXM", "gpus": 1, "gpus_per_node": 8},
      "training": {"framework": "megatron-deepspeed", "seq_len": 1024, "micro_batch": 1, "global_batch": 16, "precision": "fp16",
      "optimizer": "adam", "data_parallel": "ddp", "dp": 1, "tp": 1, "pp": 1, "recompute": "full", "attention": "unfused"}, "assumed": [)j" +
                assumed + R"j(], "measured": {"step_time_s": 1}})j");
  };
  const std::string both = R"("vocab_size 51200: the framework's default", "recompute full, precision fp16: the paper's description")";
  const MeasuredRow composed = of("ground_truth_single.csv", both);
  ASSERT_EQ(composed.refused, "");
  EXPECT_EQ(composed.model->vocab_size, 50257);
  EXPECT_EQ(composed.strategy.recompute.kind, Recompute::Kind::none);
  EXPECT_EQ(composed.strategy.megatron.make_vocab_size_divisible_by, 1);
  EXPECT_EQ(of("ground_truth_single.csv", "").model->vocab_size, 51200);
  EXPECT_EQ(of("ground_truth_single.csv", "").strategy.recompute.kind, Recompute::Kind::full);
  EXPECT_EQ(of("ground_truth_multi.csv", both).strategy.recompute.kind, Recompute::Kind::full);
}

// Two submissions of one benchmark, by launchers that differ: Cisco's closes a bucket with every parameter, checks each and overlaps no
// tensor-parallel collective; NVIDIA's fills buckets of 768 million elements.
TEST(CompletedRows, SubmissionsHaveLaunchersOfTheirOwn) {
  const auto of = [](const std::string& results) {
    return read(R"j({"id": "a", "source": {"title": "MLPerf Training v5.1 results", "where": "mlcommons/training_results_v5.1: )j" +
                results +
                R"j(/llama31_8b/result_0.txt"}, "model": {"name": "Llama-3.1-8B"}, "hardware": {"gpu": "H100-SXM5-80GB", "gpus": 16,
      "gpus_per_node": 8}, "training": {"framework": "nemo", "seq_len": 8192, "micro_batch": 1, "global_batch": 8, "precision": "fp8",
      "data_parallel": "megatron-distopt", "dp": 8, "tp": 2, "pp": 1, "sequence_parallel": true}, "measured": {"step_time_s": 1}})j");
  };
  const MeasuredRow cisco = of("Cisco/results/hpf_n16"), nvidia = of("NVIDIA/results/tyche_ngpu72_ngc25.09_nemo");
  ASSERT_EQ(cisco.refused, "");
  EXPECT_EQ(cisco.strategy.megatron.ddp_bucket_size, 64);
  EXPECT_TRUE(cisco.strategy.megatron.check_for_nan_in_grad);
  EXPECT_FALSE(cisco.strategy.async_tp.value_or(true));
  EXPECT_EQ(nvidia.strategy.megatron.ddp_bucket_size, 768000000);
  EXPECT_FALSE(nvidia.strategy.megatron.check_for_nan_in_grad);
}

}  // namespace
}  // namespace plimsoll
